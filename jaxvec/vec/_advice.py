"""Says it where environments wait instead of computing: then more workers than cores are faster."""

import math
import warnings
from typing import Any

from jaxvec.vec._worker import MEASURED_STEPS

_LONG_WAIT = 2e-4  # seconds a step: below it, more processes would cost more than they save


class Advice:
    """Looks once, after the first steps, at what the workers measured.

    Args:
      measured: float64 `[W, 3]`: seconds, CPU seconds and voluntary waits of the first steps.
      cores: how many this process may use.
    """

    def __init__(self, measured: Any, cores: int) -> None:
        self._measured, self._cores = measured, cores
        self.due_in = MEASURED_STEPS + 1

    def give(self, num_envs: int, num_workers: int) -> None:
        """Warns if another number of workers is better.

        Args:
          num_envs: N.
          num_workers: how many there are.
        """
        seconds, cpu, waits = self._measured.sum(axis=0).tolist()
        steps = MEASURED_STEPS * num_envs
        # A process that computes is interrupted by others, but does not give way of its own accord.
        is_waiting = cpu < 0.5 * seconds and waits > 0.5 * steps
        if num_workers >= num_envs or not is_waiting or seconds < _LONG_WAIT * steps:
            return
        better = min(num_envs, math.ceil(self._cores * seconds / max(cpu, 1e-9)))
        if better > num_workers:
            warnings.warn(
                f"SubprocVecEnv: these environments compute for {100 * cpu / seconds:.0f} % of a step and "
                f"wait for the rest, {seconds / steps * 1e3:.1f} ms a step. {num_workers} workers step "
                f"{num_envs} of them one after the other; num_workers={better} would let them wait side "
                "by side.",
                stacklevel=6,
            )
