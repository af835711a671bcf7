"""Seeds, spaces and attributes: the same on every backend, and seen through every layer."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.errors import MissingPartError
from jaxvec.vec import make_vec_env
from tests.faults.backends import BACKENDS, HOST, STACKS, Counter, made, stacked

every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_host = pytest.mark.parametrize("backend", HOST)
every_stack = pytest.mark.parametrize(("backend", "layer"), STACKS)


class Drawing(Counter):
    """Observes what it draws from its own generator."""

    def _observe(self):
        return self.np_random.integers(1000, size=2).astype(np.float32)


class Sized(Counter):
    """Knows what it was made with."""

    def __init__(self, size):
        super().__init__()
        self.size = size


def drawing(backend):
    return made("jax") if backend == "jax" else HOST[backend]([Drawing] * 2)


def trace(venv, seed):
    venv.seed(seed)
    seen = [venv.reset()]
    seen += [venv.step([0, 0])[0] for _ in range(7)]  # over two automatic resets
    return np.stack(seen)


@every_stack
def test_a_seed_waits_for_the_next_reset_and_serves_once(backend, layer):
    with stacked(backend, layer) as venv:
        venv.reset()
        venv.step([0, 0])
        assert list(venv.seed(4)) == [4, 5]
        counts = (
            [int(s.t) for s in venv.get_attr("state")]
            if backend == "jax"
            else venv.get_attr("steps")
        )
        assert counts == [1, 1]
        venv.reset()
        venv.reset()
        if backend != "jax":
            assert [each[-2:] for each in venv.get_attr("resets")] == [
                [(4, None), (None, None)],
                [(5, None), (None, None)],
            ]
        assert venv.unwrapped._seeds == [None, None]


@every_backend
def test_a_seed_decides_all_episodes_and_its_rows_differ(backend):
    with drawing(backend) as venv:
        one, other, again = (trace(venv, seed) for seed in (4, 9, 4))
        assert (one == again).all()
        assert (one != other).any()
        assert (one[:, 0] != one[:, 1]).any()
        assert len({each.tobytes() for each in one[[0, 3, 6]]}) == 3  # each episode begins anew


@every_host
def test_without_a_seed_environments_differ(backend):
    with drawing(backend) as venv:
        first = venv.reset()
        assert (first[0] != first[1]).any()


@every_backend
def test_spawned_seeds_share_nothing_with_those_of_the_neighbouring_run(backend):
    with made(backend, count=4) as venv:
        runs = [set(venv.seed(seed, mode="spawn")) for seed in (0, 1)]
        assert len(runs[0] | runs[1]) == 8
        assert len(set(venv.seed(0)) | set(venv.seed(1))) == 5  # SB3's: they overlap
        venv.reset()


@pytest.mark.parametrize("backend", ["dummy", "subproc", "jax"])
def test_two_builds_of_one_seed_draw_the_same_actions(backend):
    drawn = []
    for _ in range(2):
        with make_vec_env("CartPole-v1", 2, seed=3, backend=backend) as venv:
            drawn.append([int(venv.action_space.sample()) for _ in range(10)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2


@every_host
def test_what_each_environment_is_made_with_is_bound_by_partial(backend):
    with HOST[backend]([partial(Sized, size) for size in range(3)]) as venv:
        assert venv.get_attr("size") == [0, 1, 2]
    # A lambda looks its name up when it is called: in every backend, and nobody could tell.
    late = [lambda: Sized(size) for size in range(3)]  # noqa: B023
    with HOST[backend](late) as venv:
        assert venv.get_attr("size") == [2, 2, 2]


@every_host
def test_an_attribute_is_set_on_the_outermost_wrapper_or_where_one_says(backend):
    def make():
        return gym.wrappers.TimeLimit(Counter(), 9)

    with HOST[backend]([make] * 2) as venv:
        venv.set_attr("secret", 9)  # SB3's: the environment itself does not see it
        assert venv.get_attr("secret") == [9, 9]
        assert [each.secret for each in venv.get_attr("unwrapped")] == [5, 5]
        venv.set_attr("secret", 8, where="unwrapped")
        assert [each.secret for each in venv.get_attr("unwrapped")] == [8, 8]


@every_stack
def test_environments_are_named_by_any_integer_and_by_slices(backend, layer):
    with stacked(backend, layer) as venv:
        venv.reset()
        name = "state" if backend == "jax" else "secret"
        for indices, count in ((np.int64(0), 1), (slice(None), 2), (-1, 1), ([0, 1], 2), (None, 2)):
            assert len(venv.get_attr(name, indices)) == count
        with pytest.raises(IndexError, match="no environment 7"):
            venv.get_attr(name, 7)


class Lettering(Counter):
    """Observes letters."""

    def __init__(self, space):
        super().__init__()
        self.observation_space = space

    def _observe(self):
        return self.observation_space.sample()


@every_host
@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(4),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
    ],
    ids=["text", "sequence", "graph"],
)
def test_observations_of_no_fixed_size_come_as_objects(backend, space):
    with HOST[backend]([partial(Lettering, space)] * 2) as venv:
        for obs in (venv.reset(), venv.step([0, 0])[0]):
            assert (obs.dtype, obs.shape) == (object, (2,))
            assert all(space.contains(each) for each in obs)


@every_host
def test_nested_spaces_are_refused_with_what_to_do(backend):
    nested = spaces.Dict(a=spaces.Dict(b=spaces.Box(0, 1, (2,))))
    with pytest.raises(NotImplementedError, match="nested observation spaces are not supported"):
        HOST[backend]([partial(Lettering, nested)] * 2)


class OtherKeys(Counter):
    """Observes other keys than its space has."""

    def __init__(self, keys):
        super().__init__(space=spaces.Dict(a=spaces.Box(-9, 9, (2,)), b=spaces.Box(-9, 9, (2,))))
        self.keys = keys

    def step(self, action):
        _, *rest = super().step(action)
        return {key: np.ones(2, np.float32) for key in self.keys}, *rest


@every_host
def test_a_missing_key_is_refused_by_name(backend):
    with HOST[backend]([partial(OtherKeys, "a")] * 2) as venv:
        venv.reset()
        with pytest.raises(MissingPartError, match=r"row 0: the value lacks \['b'\]"):
            venv.step([0, 0])


def test_a_key_too_much_is_dropped_with_a_warning():
    with HOST["dummy"]([partial(OtherKeys, "abc")] * 2) as venv:
        venv.reset()
        with pytest.warns(UserWarning, match=r"the value has \['c'\]"):
            obs = venv.step([0, 0])[0]
        assert set(obs) == {"a", "b"}


def test_discrete_actions_with_an_axis_too_many_are_refused_by_compiled_environments():
    with made("jax") as venv:
        venv.reset()
        with pytest.raises(ValueError, match="shape"):
            venv.step(np.zeros((2, 1), int))
        venv.step(np.zeros(2, int))
