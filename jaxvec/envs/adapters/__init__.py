"""Environments of other libraries as `Env` records: raw steps, no auto-reset, ends told apart.

No library is imported before an environment of it is made by its name; an instance that is handed in is
known by what it has, not by its class.
"""

from jaxvec.envs.adapters._brax import from_brax, from_crax, from_playground
from jaxvec.envs.adapters._craftax import from_craftax
from jaxvec.envs.adapters._func_env import from_gymnasium_func
from jaxvec.envs.adapters._gymnax import from_gymnax
from jaxvec.envs.adapters._jaxmarl import agents_as_rows, from_jaxmarl
from jaxvec.envs.adapters._jumanji import from_jumanji
from jaxvec.envs.adapters._kinetix import from_kinetix
from jaxvec.envs.adapters._navix import from_navix
from jaxvec.envs.adapters._octax import from_octax
from jaxvec.envs.adapters._pgx import from_pgx
from jaxvec.envs.adapters._stoa import from_stoa
from jaxvec.envs.adapters._xminigrid import from_xminigrid

__all__ = [
    "agents_as_rows",
    "from_brax",
    "from_craftax",
    "from_crax",
    "from_gymnasium_func",
    "from_gymnax",
    "from_jaxmarl",
    "from_jumanji",
    "from_kinetix",
    "from_navix",
    "from_octax",
    "from_pgx",
    "from_playground",
    "from_stoa",
    "from_xminigrid",
]
