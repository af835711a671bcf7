"""Normalization over every backend: what learns, what is left alone, and in which order layers stand."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import JaxVecEnv, VecNormalize
from tests.faults.backends import COMPILED, HOST, Counter, filled, made

every_backend = pytest.mark.parametrize("backend", [*HOST, COMPILED])
every_host = pytest.mark.parametrize("backend", HOST)
PICTURED = spaces.Dict(
    img=spaces.Box(0, 255, (4, 5, 3), np.uint8), speed=spaces.Box(-1000, 1000, (2,), np.float32)
)


class Telling(Counter):
    """Says which spaces it has now."""

    def spaces(self):
        return repr(self.observation_space)


@every_host
def test_wrapping_leaves_the_spaces_inside_as_they_were(backend):
    with HOST[backend]([lambda: Telling(space=PICTURED)] * 2) as inner:
        before = repr(inner.observation_space)
        venv = VecNormalize(inner)
        assert venv.observation_space["img"].dtype == np.float32
        assert repr(inner.observation_space) == before
        assert inner.env_method("spaces") == [before] * 2


class Discretely(Counter):
    """Observes a number, not an array."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Discrete(9)

    def _observe(self):
        return self.steps


@every_host
def test_without_norm_obs_any_observation_will_do(backend):
    with VecNormalize(HOST[backend]([Discretely] * 2), norm_obs=False) as venv:
        assert venv.reset().tolist() == [0, 0]
        assert venv.step([0, 0])[0].tolist() == [1, 1]
        assert venv.step([0, 0])[1].dtype == np.float32


def test_without_norm_obs_any_compiled_observation_will_do():
    from jaxvec.envs import vectorize
    from tests.vec.jax_envs import SPACES, draws

    with VecNormalize(JaxVecEnv(vectorize(draws(SPACES["discrete"]), 2)), norm_obs=False) as venv:
        assert venv.reset().shape == (2,)
        venv.step([0, 0])


@every_backend
def test_a_reset_counts_and_evaluation_leaves_all_as_it_was(backend):
    with VecNormalize(made(backend)) as venv:
        venv.reset()
        assert venv.obs_rms.count == pytest.approx(2.0001, rel=1e-7)
        for _ in range(4):
            venv.step([0, 0])
        venv.training = False

        def known():
            moments = [(rms.mean, rms.var, rms.count) for rms in (venv.obs_rms, venv.ret_rms)]
            return [np.array(number) for each in moments for number in each]

        before = known()
        venv.reset()
        for _ in range(100):
            venv.step([0, 0])
        for one, other in zip(before, known(), strict=True):
            np.testing.assert_array_equal(one, other)


@every_backend
def test_returns_are_counted_and_then_cleared_where_an_episode_ends(backend):
    with VecNormalize(made(backend), gamma=0.99) as venv:
        venv.reset()
        seen = []
        for _ in range(5):
            venv.step([0, 0])
            seen.append(float(venv.returns[0]))
        np.testing.assert_allclose(seen, [1, 1.99, 0, 1, 1.99], rtol=1e-6)
        # 1, 1.99 and 2.9701 were counted: the last one before it was cleared.
        counted = np.repeat([1, 1.99, 2.9701, 1, 1.99], 2)
        weight = 1e-4 / (10 + 1e-4)
        assert float(venv.ret_rms.mean) == pytest.approx(counted.mean() * (1 - weight), rel=1e-5)


@every_backend
def test_statistics_have_the_shape_of_one_observation_whatever_n_is(backend):
    for count in (1, 3) if backend != "jax" else (3,):
        with VecNormalize(made(backend, count=count)) as venv:
            shape = venv.reset().shape[1:]
            assert venv.obs_rms.mean.shape == shape
            assert venv.ret_rms.mean.shape == ()


@every_host
def test_numbers_far_from_zero_are_normalized_by_their_own_spread(backend):
    class Far(Counter):
        def _observe(self):
            return np.float32([1e4 + self.np_random.normal(), self.np_random.normal()])

    with VecNormalize(HOST[backend]([lambda: Far(space=spaces.Box(-1e6, 1e6, (2,)))] * 2)) as venv:
        venv.seed(0)
        venv.reset()
        drawn = []
        for _ in range(300):
            venv.step([0, 0])
            drawn.append(venv.get_original_obs())
        drawn = np.concatenate(drawn).astype(np.float64)
        # The prior stands 1e4 away with the weight of 1e-4 samples.
        count = len(drawn)
        prior = 1e-4 / count * np.float64([1e4, 0]) ** 2
        np.testing.assert_allclose(venv.obs_rms.var, drawn.var(0) + prior, rtol=0.05)


def test_an_element_of_the_table_is_filled():
    assert filled(PICTURED, 3)["img"].max() == 3
