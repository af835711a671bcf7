"""JAX-native environments: the records, what makes N of one, rollouts, and a registry by name.

Env, BatchedEnv                one environment, and N of them
make, register, available      environments by name
vectorize, wrap                N copies with time limit and reset; layers on top
rollout, begin, Policy, Carry  many steps in one compiled scan
random_policy                  actions drawn from the action space
classic                        gymnasium's classic control, for JAX
from_gymnasium_func            adapts gymnasium's functional environments
"""

from jaxvec.envs._env import BatchedEnv, Env
from jaxvec.envs._registry import available, make, register
from jaxvec.envs._rollout import Carry, Policy, PolicyFunction, begin, random_policy, rollout
from jaxvec.envs._vectorize import EnvState, vectorize
from jaxvec.envs._wrap import WrapState, wrap
from jaxvec.envs.adapters import from_gymnasium_func

__all__ = [
    "BatchedEnv",
    "Carry",
    "Env",
    "EnvState",
    "Policy",
    "PolicyFunction",
    "WrapState",
    "available",
    "begin",
    "from_gymnasium_func",
    "make",
    "random_policy",
    "register",
    "rollout",
    "vectorize",
    "wrap",
]
