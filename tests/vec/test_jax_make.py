"""make_vec_env with environments of JAX's: SB3's arguments, and what each of them is here."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor as SB3Monitor

from jaxvec import episode_statistics, vectorize, wrap
from jaxvec.envs import make
from jaxvec.errors import UnknownEnvError
from jaxvec.vec import JaxVecEnv, VecMonitor, VecNormalize, load_results, make_vec_env
from tests.envs.toys import counter


def test_an_id_gives_a_monitored_compiled_vec_env():
    venv = make_vec_env("CartPole-v1", 5, seed=3, backend="jax")
    assert type(venv) is VecMonitor
    assert type(venv.unwrapped) is JaxVecEnv
    assert venv.num_envs == 5
    assert venv.unwrapped._seeds == [3, 4, 5, 6, 7]
    by_hand = JaxVecEnv(vectorize(make("CartPole-v1"), 5), seed=3)
    np.testing.assert_array_equal(venv.reset(), by_hand.reset())
    for _ in range(12):
        *_, infos = venv.step(np.ones(5, int))
        if "episode" in infos[0]:
            break
    assert infos[0]["episode"]["r"] == infos[0]["episode"]["l"] > 5


def test_without_a_seed_numpys_global_generator_gives_one():
    np.random.seed(3)  # noqa: NPY002
    first = make_vec_env("CartPole-v1", 2, backend="jax").unwrapped._seeds
    np.random.seed(3)  # noqa: NPY002
    assert make_vec_env("CartPole-v1", 2, backend="dummy")._seeds == first


def test_the_action_space_is_seeded_as_that_of_the_first_environment():
    ours, theirs = (
        make_vec_env("Pendulum-v1", 2, seed=7, start_index=4, backend=backend)
        for backend in ("jax", "dummy")
    )
    expected = theirs.get_attr("action_space", 0)[0].sample()
    np.testing.assert_array_equal(ours.action_space.sample(), expected)


def test_an_environment_or_its_maker_may_stand_in_for_an_id():
    def maker(length):
        env = counter()
        return env._replace(params=env.params._replace(length=length))

    made = make_vec_env(maker, 2, env_kwargs={"length": 2}, backend="jax")
    given = make_vec_env(maker(2), 2, backend="jax")
    batched = make_vec_env(lambda: vectorize(maker(2), 2), 2, backend="jax")
    for venv in (made, given, batched):
        venv.reset()
        venv.step([0, 0])
        assert venv.step([0, 0])[2].tolist() == [True, True]


def test_options_go_to_vectorize_and_to_the_vec_env():
    env = make("CartPole-v1")
    options = {"params": env.params, "info_keys": [], "output": "jax", "max_episode_steps": 3}
    venv = make_vec_env("CartPole-v1", 2, vec_env_kwargs=options, backend="jax")
    venv.set_attr("gravity", 3.7)
    assert not isinstance(venv.reset(), np.ndarray)
    for _ in range(3):
        *_, dones, infos = venv.step([0, 1])
    assert np.asarray(dones).all()
    assert infos[0]["TimeLimit.truncated"]


def test_the_time_limit_and_the_render_mode_of_an_id_are_gymnasiums():
    options = {"max_episode_steps": 3, "sutton_barto_reward": True}
    ours, theirs = (
        make_vec_env("CartPole-v1", 2, env_kwargs=options, backend=backend)
        for backend in ("jax", "dummy")
    )
    for venv in (ours, theirs):
        venv.reset()
        for _ in range(3):
            _, rewards, dones, infos = venv.step([0, 1])
        assert rewards.tolist() == [0, 0]
        assert dones.all()
        assert infos[1]["TimeLimit.truncated"]
        assert infos[1]["episode"]["l"] == 3
    none = make_vec_env("CartPole-v1", env_kwargs={"render_mode": None}, backend="jax")
    assert none.render_mode is None


def test_there_are_pictures_unless_nothing_can_draw_them():
    pytest.importorskip("pygame")
    ours, theirs = (make_vec_env("CartPole-v1", 2, backend=each) for each in ("jax", "dummy"))
    assert ours.render_mode == theirs.render_mode == "rgb_array"
    for venv in (ours, theirs):
        venv.reset()
    assert ours.render().shape == theirs.render().shape
    assert make_vec_env(counter(), backend="jax").render_mode is None


def test_one_file_holds_the_episodes_of_all_environments(tmp_path):
    venv = make_vec_env(
        counter(),
        2,
        start_index=3,
        monitor_dir=tmp_path / "logs",
        monitor_kwargs={"info_keywords": ("start",), "allow_early_resets": True},
        backend="jax",
    )
    first = venv.reset()
    for _ in range(3):
        *_, infos = venv.step([0, 0])
    assert infos[1]["episode"]["start"] == infos[1]["start"] == first[1, 1]
    venv.close()
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["3.monitor.csv"]
    assert load_results(tmp_path / "logs")["start"].tolist() == first[:, 1].tolist()


def test_sb3_takes_a_vec_monitor_in_place_of_monitors():
    venv = make_vec_env("CartPole-v1", 2, backend="jax")
    assert venv.env_is_wrapped(SB3Monitor) == [False, False]
    from stable_baselines3.common.vec_env import VecMonitor as SB3VecMonitor
    from stable_baselines3.common.vec_env import is_vecenv_wrapped

    assert is_vecenv_wrapped(VecNormalize(venv), SB3VecMonitor)


REFUSED = {
    "gymnasium's": ("Blackjack-v1", {}, UnknownEnvError, 'gymnasium.*backend="dummy"'),
    "misspelt": ("CartPole-v7", {}, UnknownEnvError, "Did you mean 'CartPole-v1'"),
    "a gymnasium environment": (
        lambda: gym.make("CartPole-v1"),
        {},
        TypeError,
        'made .*backend="dummy"',
    ),
    "options of an environment": (counter(), {"env_kwargs": {"a": 1}}, TypeError, "'a': 1"),
    "an unknown option": (
        counter(),
        {"env_kwargs": {}, "vec_env_kwargs": {"seed": 1}},
        TypeError,
        "seed",
    ),
    "another mode": (
        counter(),
        {"vec_env_kwargs": {"autoreset_mode": "NextStep"}},
        TypeError,
        "autoreset_mode.*info_keys.*reset_source",
    ),
    "another number": (vectorize(counter(), 2), {}, ValueError, "n_envs=1.* 2 rows"),
    "vectorized already": (
        vectorize(counter(), 1),
        {"vec_env_kwargs": {"pool_size": 3}},
        TypeError,
        "pool_size",
    ),
    "a wrapper": (counter(), {"wrapper_class": gym.Wrapper}, ValueError, "gymnasium environments"),
    "options of a wrapper": (counter(), {"wrapper_kwargs": {"a": 1}}, ValueError, "gymnasium env"),
    "early resets": (
        counter(),
        {"monitor_kwargs": {"allow_early_resets": False}},
        ValueError,
        "allow_early_resets=False.*VecMonitor",
    ),
    "a monitor's option": (counter(), {"monitor_kwargs": {"folder": "x"}}, TypeError, "'folder'"),
    "an info that is not there": (
        counter(),
        {"monitor_kwargs": {"info_keywords": ["speed"]}},
        KeyError,
        "speed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_make_is_refused(name):
    env_id, options, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        make_vec_env(env_id, **options, backend="jax")


def test_pythons_backends_take_no_compiled_environment():
    with pytest.raises(TypeError, match='Env, which JAX steps: pass backend="jax"'):
        make_vec_env(counter(), backend="dummy")


def test_an_environment_that_counts_its_episodes_is_monitored_all_the_same():
    batched = wrap(vectorize(counter(), 1), episode_statistics())
    venv = make_vec_env(batched, backend="jax")
    venv.reset()
    for _ in range(3):
        *_, infos = venv.step([0])
    assert infos[0]["episode"]["l"] == 3
