"""Environments by name: what there is, what is made, and what a wrong name or option says."""

import subprocess
import sys

import gymnasium
import jax
import pytest

import jaxvec
from jaxvec.envs import _registry, available, make, namespaces, register
from jaxvec.errors import JaxvecError, UnknownEnvError

GYMNASIUM_IDS = (
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
)


@pytest.fixture
def own_registry(monkeypatch):
    """Registers into a copy, so that one test's names do not reach the next."""
    monkeypatch.setattr(_registry, "_FACTORIES", dict(_registry._FACTORIES))


def test_available_lists_all_names_in_order():
    assert available() == sorted(available())
    assert {*GYMNASIUM_IDS, "Breakout-MinAtar-v1"} <= set(available())


@pytest.mark.parametrize("name", GYMNASIUM_IDS)
def test_an_environment_has_the_spaces_and_the_time_limit_of_gymnasiums_of_that_name(name):
    ours, theirs = make(name), gymnasium.make(name)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.max_episode_steps == theirs.spec.max_episode_steps


@pytest.mark.parametrize("name", available())
def test_every_environment_runs_and_its_observations_lie_in_its_space(name):
    env = make(name)
    assert env.metadata["name"] == name
    batched = jaxvec.vectorize(env, 3)
    policy = jaxvec.random_policy(batched)
    _, (obs, _, timestep) = jaxvec.rollout(batched, policy, jax.random.key(0), 20)
    obs, final_obs = jax.device_get((obs, timestep.final_obs))
    for step in range(20):
        for row in range(3):
            assert env.observation_space.contains(obs[step, row])
            assert env.observation_space.contains(final_obs[step, row])


def test_options_reach_the_factory():
    assert make("CartPole-v1", sutton_barto_reward=True).params.sutton_barto_reward is True
    assert make("CartPole-v1").params.sutton_barto_reward is False


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("CartPole-v0", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("Cartpole", "CartPole-v1"),
        ("MountainCar-v1", "MountainCar-v0"),
        ("Breakout-MinAtar", "Breakout-MinAtar-v1"),
    ],
)
def test_an_unknown_name_is_refused_with_the_near_ones(asked, near):
    with pytest.raises(UnknownEnvError, match="Did you mean") as caught:
        make(asked)
    assert repr(asked) in str(caught.value)
    assert repr(near) in str(caught.value)


def test_a_name_like_none_is_refused_with_all_of_them():
    with pytest.raises(UnknownEnvError) as caught:
        make("zzz")
    assert all(name in str(caught.value) for name in available())


def test_a_library_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(UnknownEnvError, match=r"'atari:Pong' names the library 'atari'.*gymnax"):
        make("atari:Pong")


def test_a_package_adds_a_library_by_an_entry_point(tmp_path, monkeypatch):
    info = tmp_path / "mazes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mazes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jaxvec.envs]\nmazes = mazes_of_a_test:make\n")
    (tmp_path / "mazes_of_a_test.py").write_text(
        "from jaxvec.envs import make as jaxvec_make\n"
        "def make(name, *, limit):\n"
        "    return jaxvec_make('CartPole-v1')._replace(max_episode_steps=limit, metadata={'of': name})\n"
    )
    assert "mazes" not in namespaces()
    monkeypatch.syspath_prepend(tmp_path)
    assert "mazes" in namespaces()
    env = make("mazes:Small", limit=7)
    assert env.max_episode_steps == 7
    assert env.metadata == {"name": "mazes:Small", "of": "Small"}


def test_an_unknown_name_is_both_a_key_error_and_jaxvecs_own():
    for kind in (KeyError, JaxvecError):
        with pytest.raises(kind):
            make("zzz")


def test_an_option_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(TypeError, match=r"CartPole-v1.*'gravty'.*sutton_barto_reward"):
        make("CartPole-v1", gravty=1.0)


@pytest.mark.usefixtures("own_registry")
def test_a_registered_function_is_made_with_its_options():
    register("Mine-v0", lambda *, limit=7: make("CartPole-v1")._replace(max_episode_steps=limit))
    assert "Mine-v0" in available()
    assert make("Mine-v0").max_episode_steps == 7
    assert make("Mine-v0", limit=9).max_episode_steps == 9


@pytest.mark.usefixtures("own_registry")
def test_a_registered_text_is_imported_when_it_is_made():
    register("Later-v0", "no_such_module:make_it")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        make("Later-v0")
    register("Later-v0", "jaxvec.envs.classic:pendulum", replace=True)
    assert make("Later-v0").max_episode_steps == 200


@pytest.mark.usefixtures("own_registry")
def test_a_name_that_is_taken_is_replaced_only_when_asked():
    with pytest.raises(ValueError, match="'CartPole-v1' is taken"):
        register("CartPole-v1", lambda: None)
    register("CartPole-v1", lambda: make("Pendulum-v1"), replace=True)
    assert make("CartPole-v1").max_episode_steps == 200


@pytest.mark.parametrize("name", ["", "gymnax:Mine"])
def test_a_name_that_means_something_else_is_refused(name):
    with pytest.raises(ValueError, match="must not be empty and has no ':'"):
        register(name, lambda: None)


@pytest.mark.parametrize("factory", ["module", "module:", ":attribute"])
def test_a_text_that_is_no_place_is_refused(factory):
    with pytest.raises(ValueError, match="must read 'module:attribute'"):
        register("Mine-v0", factory)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="cannot be called"):
        register("Mine-v0", 3)


@pytest.mark.usefixtures("own_registry")
def test_a_factory_that_returns_no_env_is_refused():
    register("Wrong-v0", lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(TypeError, match=r"returned .*, not a jaxvec\.Env"):
        make("Wrong-v0")


def test_an_environments_module_is_imported_when_it_is_made():
    code = (
        "import sys, jaxvec.envs as envs; before = 'jaxvec.envs.classic' in sys.modules; "
        "envs.make('CartPole-v1'); print(before, 'jaxvec.envs.classic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
