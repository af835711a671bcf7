"""`RunningMeanStd`: running moments that one holds and updates in place, on Stable-Baselines3's face."""

from typing import Any, Self

import numpy as np

from jaxvec.core._host_moments import merge_on_host
from jaxvec.core._moments import RunningMoments, update_moments
from jaxvec.core._xp import is_numpy, namespace
from jaxvec.typing import Array
from jaxvec.vec._sb3 import MEAN_STDS, apparent_class


class RunningMeanStd:
    """Running mean and population variance of samples.

    Args:
      epsilon: the weight of the prior N(0, 1), samples.
      shape: of one sample.

    Attributes:
      moments: the record that is held; float64, or pairs of float32 on a device.
    """

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = ()) -> None:
        self.moments = RunningMoments(
            mean=np.zeros(shape),
            var=np.ones(shape),
            count=np.float64(epsilon),
            mean_low=np.zeros(shape),
            var_low=np.zeros(shape),
            count_low=np.float64(0),
        )

    @classmethod
    def holding(cls, moments: RunningMoments) -> Self:
        """Returns one that holds these moments."""
        new = cls.__new__(cls)
        new.moments = moments
        return new

    @classmethod
    def of(cls, other: Any) -> "RunningMeanStd":
        """Returns `other` if it is one; else the numbers of anything with `mean`, `var` and `count`."""
        if isinstance(other, RunningMeanStd):
            return other
        new = cls(shape=np.shape(other.mean))
        new.mean, new.var, new.count = other.mean, other.var, other.count
        return new

    # It cannot be assigned, as checkers ask: it follows from what is loaded.
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The object's class: where SB3 is loaded, one that inherits from SB3's too."""
        return apparent_class(type(self), MEAN_STDS)

    def __reduce__(self) -> tuple[Any, ...]:
        # Named by its own class: `__class__` may be one that cannot be imported.
        return _holding, (type(self), self.moments)

    @property
    def mean(self) -> Array:
        """The mean, float64 `[*D]`."""
        return _value(self.moments.mean, self.moments.mean_low)

    @mean.setter
    def mean(self, value: Array) -> None:
        high, low = words_of(value, self.moments.mean)
        self.moments = self.moments._replace(mean=high, mean_low=low)

    @property
    def var(self) -> Array:
        """The population variance, float64 `[*D]`."""
        return _value(self.moments.var, self.moments.var_low)

    @var.setter
    def var(self, value: Array) -> None:
        high, low = words_of(value, self.moments.var)
        self.moments = self.moments._replace(var=high, var_low=low)

    @property
    def count(self) -> float:
        """How many samples."""
        return float(_value(self.moments.count, self.moments.count_low))

    @count.setter
    def count(self, value: float) -> None:
        high, low = words_of(value, self.moments.count)
        self.moments = self.moments._replace(count=high, count_low=low)

    def copy(self) -> "RunningMeanStd":
        """Returns one with the same numbers."""
        moments: Any = self.moments
        return RunningMeanStd.holding(RunningMoments(*(field.copy() for field in moments)))

    def combine(self, other: "RunningMeanStd") -> None:
        """Merges the samples of another one, its prior included."""
        self.update_from_moments(other.mean, other.var, other.count)

    def update(self, arr: Array) -> None:
        """Merges samples, `[B, *D]`."""
        if np.shape(arr)[1:] == self.moments.mean.shape:
            self.moments = update_moments(self.moments, arr)
        else:  # SB3 broadcasts
            self.update_from_moments(np.mean(arr, axis=0), np.var(arr, axis=0), len(arr))

    def update_from_moments(self, batch_mean: Array, batch_var: Array, batch_count: float) -> None:
        """Merges samples of which mean, population variance and number are known.

        References:
          Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
          Variances, 1979, eq. 2.1.
        """
        mean, var, batch_mean, batch_var = np.broadcast_arrays(
            self.mean, self.var, batch_mean, batch_var
        )
        self.mean, self.var, self.count = merge_on_host(
            mean, var, np.float64(self.count), batch_mean - mean, batch_var, batch_count
        )


def holders_of(rms: Any) -> Any:
    """Returns anything that holds moments, or a dict of such, as jaxvec's own; see `RunningMeanStd.of`."""
    if isinstance(rms, dict):
        return {key: RunningMeanStd.of(each) for key, each in rms.items()}
    return RunningMeanStd.of(rms)


def _holding(cls: type[RunningMeanStd], moments: RunningMoments) -> RunningMeanStd:
    return cls.holding(moments)


def host_moments(rms: RunningMeanStd) -> RunningMoments:
    """Returns the moments in float64, wherever they are held."""
    if is_numpy(rms.moments.mean):
        return rms.moments
    own = RunningMeanStd(shape=rms.moments.mean.shape)
    own.mean, own.var, own.count = rms.mean, rms.var, rms.count
    return own.moments


def _value(high: Array, low: Array) -> Array:
    """Returns the float64 value of a number in two words; float64 itself has no low word."""
    if high.dtype == np.float64 and is_numpy(high):
        return high
    return np.asarray(high).astype(np.float64) + np.asarray(low).astype(np.float64)


def words_of(value: Any, like: Array) -> tuple[Array, Array]:
    """Returns a float64 value as the two words of the dtype and on the device that `like` has."""
    exact = np.array(value, np.float64)[()]
    if is_numpy(like) and like.dtype == np.float64:
        return exact, np.zeros_like(exact)[()]
    high = exact.astype(like.dtype)
    xp = namespace(like)
    return xp.asarray(high), xp.asarray((exact - high).astype(like.dtype))
