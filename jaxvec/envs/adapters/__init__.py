"""Environments of other libraries as `Env` records: raw steps, no auto-reset, ends told apart."""

from jaxvec.envs.adapters._func_env import from_gymnasium_func

__all__ = ["from_gymnasium_func"]
