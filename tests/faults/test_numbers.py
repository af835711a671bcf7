"""Numbers: one dtype on every backend, no value changed on the way, sums that lose nothing."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import VecCheckNan, VecMonitor, VecNormalize
from tests.faults.backends import HOST, STACKS, Counter, made, stacked

every_host = pytest.mark.parametrize("backend", HOST)
every_stack = pytest.mark.parametrize(("backend", "layer"), STACKS)


class Showing(Counter):
    """Observes what it is given, whatever its space says."""

    def __init__(self, shown, space):
        super().__init__(space=space)
        self.shown = shown

    def step(self, action):
        _, *rest = super().step(action)
        return self.shown, *rest


class Showings:
    """Makes such an environment; a class, so that it can be pickled."""

    def __init__(self, shown, space):
        self.arguments = shown, space

    def __call__(self):
        return Showing(*self.arguments)


BYTES = spaces.Box(0, 255, (2,), np.uint8)
VECTOR = spaces.Box(-10, 10, (2,), np.float32)
MATRIX = spaces.Box(-10, 10, (2, 3), np.float32)


@every_host
def test_wide_numbers_arrive_in_the_dtype_of_the_space_and_rewards_as_float32(backend):
    with HOST[backend]([Showings(np.array([0.1, 0.2]), VECTOR)] * 2) as venv:
        assert venv.reset().dtype == np.float32
        obs, rewards, *_ = venv.step([0, 0])
        assert obs.dtype == rewards.dtype == np.float32
        assert obs.tolist() == [np.float32([0.1, 0.2]).tolist()] * 2
    with made(backend, reward=0.1) as venv:
        venv.reset()
        assert venv.step([0, 0])[1].tolist() == [np.float32(0.1)] * 2


@every_host
@pytest.mark.parametrize(
    ("shown", "space", "match"),
    [
        (np.array([300.0, -1.0]), BYTES, "row 0: 300.0 does not fit uint8"),
        ([300, -1], BYTES, "row 0: 300 does not fit uint8"),
        (np.array([1.5], np.float32), VECTOR, r"row 0: .*shape \(1,\), \(2,\) is needed"),
        (np.zeros((3, 2), np.float32), MATRIX, r"row 0: .*shape \(3, 2\), \(2, 3\) is needed"),
        (np.float32(7), VECTOR, r"row 0: .*shape \(\), \(2,\) is needed"),
    ],
    ids=["floats", "list", "broadcast", "scrambled", "scalar"],
)
def test_what_would_wrap_broadcast_or_scramble_is_refused_by_every_backend(
    backend, shown, space, match
):
    with HOST[backend]([Showings(shown, space)] * 2) as venv:
        venv.reset()
        with pytest.raises(ValueError, match=match):
            venv.step([0, 0])


@every_host
@pytest.mark.parametrize("reward", [np.array([2.0]), [2.0], np.array(2), np.float64(2), 2])
def test_a_reward_of_one_number_in_any_wrapping_is_one_number(backend, reward):
    with VecMonitor(made(backend, length=2, reward=reward)) as venv:
        venv.reset()
        venv.step([0, 0])
        _, rewards, _, infos = venv.step([0, 0])
        assert rewards.shape == (2,)
        assert rewards.tolist() == [2, 2]
        assert infos[0]["episode"]["r"] == 4


@every_host
def test_a_reward_of_two_numbers_is_refused(backend):
    with made(backend, reward=np.ones(2)) as venv:
        venv.reset()
        with pytest.raises(ValueError, match=r"environment 0.*shape \(2,\); one number"):
            venv.step([0, 0])


@every_stack
def test_a_learner_may_write_into_all_that_it_is_handed(backend, layer):
    with stacked(backend, layer) as venv:
        traces = []
        for writes in (True, False):
            venv.seed(3)
            obs, trace = venv.reset(), []
            for _ in range(4):
                if writes:
                    obs[...] = 777
                obs, rewards, dones, infos = venv.step([0, 0])
                trace.append((obs.copy(), rewards.copy(), dones.copy(), set(infos[0])))
                if writes:
                    rewards += 5
                    dones[...] = True
                    infos[0]["mine"] = 1
            traces.append(trace)
        for one, other in zip(*traces, strict=True):
            assert one[3] == other[3]
            np.testing.assert_array_equal(one[2], other[2])
            if "normalize" not in layer:  # the statistics learn on from one trace to the other
                np.testing.assert_array_equal(one[0], other[0])
                np.testing.assert_array_equal(one[1], other[1])


@every_host
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_are_found_before_they_spoil_statistics_for_ever(backend, bad):
    shown = np.zeros(2), np.full(2, bad)
    inner = HOST[backend]([Showings(each, VECTOR) for each in shown])
    with VecNormalize(VecCheckNan(inner, raise_exception=True)) as venv:
        venv.reset()
        with pytest.raises(ValueError, match=r"found (nan|inf) in observations"):
            venv.step([0, 0])
        assert np.isfinite(venv.obs_rms.mean).all()
        assert np.isfinite(venv.obs_rms.var).all()


def test_what_is_normalized_is_float32_and_what_is_undone_is_float64():
    space = spaces.Dict(a=VECTOR, b=spaces.Box(-10, 10, (2,), np.float64), c=spaces.Discrete(3))
    venv = VecNormalize(
        made("dummy", space=spaces.Dict(a=space["a"], b=space["b"])), norm_obs_keys=["a"]
    )
    obs = venv.reset()
    assert (obs["a"].dtype, obs["b"].dtype) == (np.float32, np.float64)
    assert venv.unnormalize_obs(obs)["a"].dtype == np.float64
    for reward in (np.array([1, 2]), np.array([1.0, 2.0]), np.float32([1, 2])):
        assert venv.normalize_reward(reward).dtype == np.float32
        assert venv.unnormalize_reward(venv.normalize_reward(reward)).dtype == np.float64
    plain = VecNormalize(made("dummy", space=space["b"]), norm_obs=False)
    assert plain.reset().dtype == np.float64
    assert plain.step([0, 0])[1].dtype == np.float32
