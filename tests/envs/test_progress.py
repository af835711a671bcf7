"""A rollout that shows a bar is the same rollout, and one that shows none knows nothing of bars."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import _progress, begin
from jaxvec.random import hash_key
from tests.envs.toys import assert_same, counter

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 4


class FakeBar:
    """Remembers what it was told."""

    made: list["FakeBar"]

    def __init__(self, total, **options):
        self.total, self.n, self.seen, self.closed = total, 0, [], False
        self.made.append(self)

    def update(self, more):
        assert not self.closed
        self.n += more
        self.seen.append(self.n)

    def close(self):
        self.closed = True


@pytest.fixture
def bars(monkeypatch):
    """The bars that are made from here on."""
    monkeypatch.setattr(FakeBar, "made", [], raising=False)
    monkeypatch.setattr(_progress, "find_tqdm", lambda: FakeBar)
    return FakeBar.made


@pytest.fixture(scope="module")
def env():
    layers = (jaxvec.episode_statistics(), jaxvec.frame_stack(2), jaxvec.normalize_observation())
    return jaxvec.wrap(jaxvec.vectorize(counter(), N), *layers)


def policy(key, obs):
    return jax.random.randint(key, (N,), 0, 4)


@pytest.mark.parametrize("num_steps", [1, 30, 120, 211])  # 211 is prime: a part is left over
def test_a_bar_changes_nothing_and_ends_at_the_last_step(env, bars, num_steps):
    start = begin(env, policy, hash_key(0))
    plain = jaxvec.rollout(env, policy, None, num_steps, start=start)
    barred = jaxvec.rollout(env, policy, None, num_steps, start=start, progress=True)
    assert_same(barred, plain)
    jax.effects_barrier()
    (bar,) = bars
    assert bar.closed
    assert bar.seen[-1] == bar.total == num_steps * N
    assert bar.seen == sorted(bar.seen)
    assert len(bar.seen) == _progress.cut(num_steps)[1]


def test_each_run_of_a_compiled_rollout_has_a_bar_of_its_own(env, bars):
    start = begin(env, policy, hash_key(0))
    for _ in range(2):
        jaxvec.rollout(env, policy, None, 50, start=start, progress=True)
        jax.effects_barrier()
    assert [bar.n for bar in bars] == [50 * N, 50 * N]


def test_under_vmap_over_seeds_a_bar_shows_where_all_of_them_are(env, bars):
    def reward(key):
        kept = jaxvec.rollout(
            env, policy, key, 40, collect=lambda obs, action, step: step.reward, progress=True
        )
        return kept[1]

    rewards = jax.jit(jax.vmap(reward))(jnp.stack([hash_key(0), hash_key(1)]))
    jax.effects_barrier()
    assert rewards.shape == (2, 40, N)
    (bar,) = bars
    assert bar.n == bar.total == 40 * N


def test_a_rollout_with_a_bar_has_the_same_gradient(bars):
    def swing(key, params):
        return jnp.float32(0), jnp.zeros(1), {}

    def step(key, state, action, params):
        state = jnp.sin(state + action[0])
        return state, state[None], state, False, False, {}

    box = counter().observation_space.__class__(-1, 1, (1,), np.float32)
    env = jaxvec.vectorize(jaxvec.Env(swing, step, {}, box, box), 1)

    def total(weight, progress):
        act = jaxvec.Policy(lambda key, spec: weight, lambda w, key, obs, first: (w, obs + w))
        _, (_, _, steps) = jaxvec.rollout(env, act, hash_key(0), 9, progress=progress)
        return steps.reward.sum()

    slopes = [jax.grad(total)(0.3, progress) for progress in (False, True)]
    assert slopes[0] != 0
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-6)


def test_without_a_bar_the_program_calls_nobody(env, bars):
    start = begin(env, policy, hash_key(0))

    def program(**options):
        return str(
            jax.make_jaxpr(lambda s: jaxvec.rollout(env, policy, None, 300, start=s, **options))(
                start
            )
        )

    assert "callback" not in program()
    assert program() == program(progress=False)
    assert "callback" in program(progress=True)


def test_a_missing_library_and_a_wrong_switch_are_said_first(env, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(jaxvec.errors.MissingExtraError, match=r"tqdm.*jaxvec\[cli\]"):
        jaxvec.rollout(env, policy, hash_key(0), 10, progress=True)
    with pytest.raises(ValueError, match="progress"):
        jaxvec.rollout(env, policy, hash_key(0), 10, progress="yes")


def test_the_library_takes_what_it_is_told(env, capsys):
    pytest.importorskip("tqdm")
    jaxvec.rollout(env, policy, hash_key(0), 100, progress=True)
    jax.effects_barrier()
    assert "100%" in capsys.readouterr().err
