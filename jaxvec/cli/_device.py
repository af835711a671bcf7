"""Whether JAX can do its part: found out first, so that no option of the user's is blamed for it."""

import contextlib
from typing import Any

from jaxvec.cli._failure import Failure, told


def check_jax(compiled: str | None) -> None:
    """Refuses a JAX that finds no device, or that is told not to compile.

    Args:
      compiled: what is going to be compiled, for the message; None for nothing of weight.

    Raises:
      Failure: in either case.
    """
    import jax

    config: Any = jax.config  # its types do not know its flags
    try:
        jax.devices()
    except (
        Exception
    ) as error:  # an unknown platform is a RuntimeError, one without device an assertion
        chosen = f" JAX_PLATFORMS is {config.jax_platforms!r}:" if config.jax_platforms else ""
        raise Failure(
            f"JAX finds no device to run on ({told(error)}).{chosen} unset JAX_PLATFORMS, or install JAX "
            "for that platform, such as jax[cuda13]."
        ) from error
    if compiled is not None and config.jax_disable_jit:
        raise Failure(
            f"JAX_DISABLE_JIT is set, and {compiled} is a compiled program, which would take hours step by "
            "step: unset it."
        )


def make_devices(count: int) -> None:
    """Has JAX take a CPU for that many devices, unless it has begun with fewer, or has more."""
    import jax

    config: Any = jax.config
    if config.jax_num_cpu_devices >= count:
        return
    with contextlib.suppress(RuntimeError):
        config.update("jax_num_cpu_devices", count)
