"""Public laws: what an environment and a layer must obey, checked on yours.

>>> from jaxvec.envs import make
>>> from jaxvec.testing import check_env
>>> report = check_env(make("CartPole-v1"), num_envs=4, num_steps=50)
>>> [law.name for law in report.laws if not law.holds]
[]
"""

from jaxvec.testing._env_laws import check_env
from jaxvec.testing._report import Law, Report
from jaxvec.testing._transform_laws import check_transform

__all__ = ["Law", "Report", "check_env", "check_transform"]
