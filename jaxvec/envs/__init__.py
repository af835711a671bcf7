"""JAX-native environments: the records, what makes N of one, rollouts, and a registry by name.

Env, BatchedEnv                one environment, and N of them
make, register, available      environments by name; `namespaces`: the libraries known by theirs
vectorize, wrap                N copies with time limit and reset; layers on top
rollout, begin, Policy, Carry  many steps in one compiled scan
shard, device_mesh             rows over several devices
random_policy                  actions drawn from the action space
classic                        gymnasium's classic control, for JAX
from_gymnasium_func, from_*    adapt the environments of other libraries; `agents_as_rows`: those of teams
"""

from jaxvec.envs._env import BatchedEnv, Env
from jaxvec.envs._registry import available, make, namespaces, register
from jaxvec.envs._rollout import Carry, Policy, PolicyFunction, begin, random_policy, rollout
from jaxvec.envs._shard import device_mesh, shard
from jaxvec.envs._vectorize import EnvState, vectorize
from jaxvec.envs._wrap import WrapState, wrap
from jaxvec.envs.adapters import (
    agents_as_rows,
    from_brax,
    from_craftax,
    from_crax,
    from_gymnasium_func,
    from_gymnax,
    from_jaxmarl,
    from_jumanji,
    from_kinetix,
    from_navix,
    from_octax,
    from_pgx,
    from_playground,
    from_stoa,
    from_xminigrid,
)

__all__ = [
    "BatchedEnv",
    "Carry",
    "Env",
    "EnvState",
    "Policy",
    "PolicyFunction",
    "WrapState",
    "agents_as_rows",
    "available",
    "begin",
    "device_mesh",
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
    "make",
    "namespaces",
    "random_policy",
    "register",
    "rollout",
    "shard",
    "vectorize",
    "wrap",
]
