"""`jaxvec rollout --backend` and `jaxvec bench`: one environment, stepped in different ways."""

import json
import sys
import textwrap

import gymnasium
import numpy as np
import pytest

import jaxvec
from jaxvec.cli import _bench as bench
from jaxvec.cli import main
from jaxvec.cli._vec_run import Watch

MODULE = """
    import warnings
    import gymnasium as gym
    import jax.numpy as jnp
    import numpy as np
    from jaxvec import Policy

    class Steps(gym.Env):
        # Its observation is the number of its step, its reward the action; an episode has 5 steps.
        observation_space = gym.spaces.Box(0, 99, (2,), np.float32)
        action_space = gym.spaces.Discrete(3)
        bad = None

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.steps += 1
            if action not in self.action_space:
                raise RuntimeError(f"no such action: {action}")
            obs = np.full(2, np.nan if self.steps == self.bad else self.steps, np.float32)
            return obs, float(action), self.steps == 5, False, {}

    class Bad(Steps):
        bad = 3

    class Warns(Steps):
        def step(self, action):
            if self.steps == 2:
                warnings.warn("in step 3")
            return super().step(action)

    class BadFirst(Steps):
        def reset(self, **kwargs):
            return np.full(2, np.nan, np.float32), {}

    instance = Steps()

    def limited():
        return gym.make("CartPole-v1")

    def follow(key, obs):  # what the step's number asks for
        return (obs[:, 0] % 3).astype(int)

    def counting(key, spec):
        return jnp.zeros((), int)

    def act(state, key, obs, first):
        return state + 1, jnp.where(first, 2, state % 2)

    stateful = Policy(counting, act)

    def too_wide(key, obs):
        return obs

    def nine(key, obs):
        return jnp.full(len(obs), 9)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A current directory with a user's module in it."""
    (tmp_path / "classic_module.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "classic_module", raising=False)
    return tmp_path


def rolled(capsys, *words: object) -> dict:
    """Runs a rollout; returns its report."""
    assert main(["rollout", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def ended(capsys, code: int, *words: object) -> str:
    """Runs a command that fails; returns its one line."""
    assert main([str(word) for word in words]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    return err


LAYERS = ["check_finite", "episode_statistics", "frame_stack"]
LAYERS += ["normalize_observation", "normalize_reward"]


@pytest.mark.parametrize("backend", ["jax-vec", "dummy", "subproc"])
def test_a_vec_env_takes_the_options_and_gives_the_report_of_a_scan(backend, here, capsys):
    words = ("CartPole-v1", "--num-envs", 4, "--num-steps", 61, "--time-limit", 7, "--seed", 3)
    words += ("--frame-stack", 2, "--normalize", "--monitor", "run", "--plot", "returns.png")
    report = rolled(capsys, *words, "--save-stats", "stats.npz", "--backend", backend)
    scan = rolled(capsys, *words, "--save-stats", "scan.npz")
    assert report.keys() == scan.keys()
    assert (report["backend"], scan["backend"]) == (backend, "scan")
    same = ("env", "num_envs", "num_steps", "env_steps", "layers", "seed", "policy")
    assert [report[name] for name in same] == [scan[name] for name in same]
    assert report["layers"] == LAYERS
    assert report["files"]["monitor"] == "run.monitor.csv"
    assert report["lengths"]["max"] == 7  # CartPole cannot end before its 8th step
    assert report["episodes"] == 4 * (61 // 7)
    assert report["steps_per_second"] == pytest.approx(4 * 60 / report["seconds"])
    assert (here / "returns.png").read_bytes().startswith(b"\x89PNG")
    rows = (here / "run.monitor.csv").read_text().splitlines()[2:]
    assert [row.split(",")[1] for row in rows] == ["7"] * report["episodes"]
    venv = jaxvec.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    loaded = jaxvec.VecNormalize.load("stats.npz", jaxvec.VecFrameStack(venv, 2))
    assert loaded.obs_rms.count == pytest.approx(4 * 62)


@pytest.mark.parametrize("backend", ["dummy", "subproc"])
def test_a_users_class_and_policy_meet_step_by_step(backend, capsys):
    words = ("classic_module:Steps", "--num-envs", 3, "--num-steps", 20, "--backend", backend)
    report = rolled(capsys, *words, "--policy", "classic_module:follow")
    # Steps 1 to 5 see observations 0 to 4, and act 0, 1, 2, 0, 1.
    assert report["returns"] == {"mean": 4, "min": 4, "max": 4}
    assert report["lengths"] == {"mean": 5, "min": 5, "max": 5}
    assert report["episodes"] == 12


def test_a_policy_with_a_state_counts_its_steps_and_sees_where_episodes_begin(capsys):
    words = ("classic_module:Steps", "--num-envs", 3, "--num-steps", 10, "--backend", "dummy")
    report = rolled(capsys, *words, "--policy", "classic_module:stateful")
    # Step k acts k % 2, but 2 at steps 0 and 5: 2+1+0+1+0, then 2+0+1+0+1.
    assert report["returns"] == {"mean": 4, "min": 4, "max": 4}


def test_random_actions_are_those_of_the_scan(monkeypatch):
    """The same keys: what differs between the back ends is the environments' resets alone."""
    from rich.console import Console

    from jaxvec.cli._rollout import Request, started

    seen = []
    original = Watch._before_step

    def noted(self, actions):
        seen.append(np.array(actions))
        original(self, actions)

    monkeypatch.setattr(Watch, "_before_step", noted)
    run = started(Request("Pendulum-v1", 3, 150, seed=5, backend="dummy"), Console())
    for _ in run.pieces():
        pass
    run.close()
    env = jaxvec.vectorize(jaxvec.envs.make("Pendulum-v1"), 3)
    key = jaxvec.random.hash_key(5)
    _, (_, action, _) = jaxvec.rollout(env, jaxvec.random_policy(env), key, 150)
    np.testing.assert_array_equal(np.stack(seen), action)


def test_a_jax_vec_env_compiles_in_its_first_step_only(capsys):
    report = rolled(
        capsys, "Pendulum-v1", "--num-envs", 4, "--num-steps", 500, "--backend", "jax-vec"
    )
    assert report["episodes"] == 8
    assert report["seconds"] < report["compile_seconds"]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Bad", "at step 2: check_finite: in row 0, obs[0] is nan"),
        ("BadFirst", "the first observation: check_finite: in row 0, obs[0] is nan"),
    ],
)
def test_a_number_that_is_not_finite_ends_the_run_with_row_and_step(env, said, capsys):
    words = ("--num-envs", 2, "--num-steps", 9, "--normalize", "--backend", "dummy")
    assert said in ended(capsys, 1, "rollout", f"classic_module:{env}", *words)


@pytest.mark.parametrize(
    ("env", "words", "said"),
    [
        ("Nothing-v0", (), "Environment `Nothing` doesn't exist"),
        ("Breakout-MinAtar-v1", (), "is one of jaxvec's: take --backend scan or jax-vec"),
        ("classic_module:nothing", (), "has no attribute 'nothing'"),
        ("classic_module:stateful", (), "not a function or class that makes a gymnasium.Env"),
        ("classic_module:instance", (), "each row needs its own"),
        ("classic_module:limited", ("--time-limit", 501), "truncates at 500 steps itself"),
        (
            "CartPole-v1",
            ("--policy", "classic_module:too_wide"),
            "shape (2, 4), but 2 environments need",
        ),
        ("CartPole-v1", ("--num-workers", 2), "--num-workers is for --backend subproc"),
        ("classic_module:Steps", ("--policy", "classic_module:nine"), "the policy's actions"),
        ("CartPole-v1", ("--seed", -1), "--seed -1"),
    ],
)
def test_bad_input_ends_with_one_clear_line_and_code_2(env, words, said, capsys):
    line = ended(capsys, 2, "rollout", env, "--num-envs", 2, "--backend", "dummy", *words)
    assert said in line


def test_a_time_limit_cuts_a_users_environment_too(capsys):
    words = ("classic_module:limited", "--num-envs", 2, "--num-steps", 12, "--time-limit", 6)
    assert rolled(capsys, *words, "--backend", "dummy")["lengths"]["max"] == 6


def test_an_unknown_backend_lists_those_that_exist(capsys):
    line = ended(capsys, 2, "rollout", "CartPole-v1", "--backend", "gpu")
    assert all(name in line for name in ("scan", "jax-vec", "dummy", "subproc"))


def test_one_step_through_a_vec_env_is_too_little_to_tell_its_rate(capsys):
    words = ("CartPole-v1", "--num-envs", 2, "--num-steps", 1, "--backend", "dummy")
    report = rolled(capsys, *words)
    assert (report["env_steps"], report["steps_per_second"]) == (2, None)
    assert main(["rollout", *map(str, words)]) == 0
    assert "too few to tell" in capsys.readouterr().out


def test_a_warning_in_a_step_is_one_line(capsys):
    words = ("classic_module:Warns", "--num-envs", 1, "--num-steps", 4, "--backend", "dummy")
    assert main(["rollout", *map(str, words)]) == 0
    assert capsys.readouterr().err == "warning: in step 3\n"


# --- jaxvec bench --------------------------------------------------------------------------------


def test_the_back_ends_that_fit_are_timed_and_the_fastest_is_named(monkeypatch, capsys):
    monkeypatch.setattr(bench, "usable_cores", lambda: 2)
    words = ["bench", "CartPole-v1", "--seconds", "0.01", "--num-envs", "3", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    settings = [each["setting"] for each in found["results"]]
    workers = ["subproc, 1 worker", "subproc, 2 workers"]
    assert settings == ["dummy", *workers, "jax-vec", "scan"]
    assert found["left_out"] == {}
    rates = [each["steps_per_second"] for each in found["results"]]
    assert found["fastest"]["steps_per_second"] == max(rates)
    for each in found["results"]:
        assert each["steps_per_second"] == pytest.approx(each["env_steps"] / each["seconds"])
        assert each["env_steps"] % 3 == 0


@pytest.mark.parametrize(
    ("env", "backends", "why"),
    [
        ("Breakout-MinAtar-v1", ["jax-vec", "scan"], "one of jaxvec's"),
        ("classic_module:Steps", ["dummy"], "not a jaxvec.Env"),
    ],
)
def test_back_ends_that_do_not_fit_are_left_out_with_the_reason(
    env, backends, why, monkeypatch, capsys
):
    monkeypatch.setattr(bench, "_settings", only_without_workers)
    assert main(["bench", env, "--seconds", "0.01", "--num-envs", "1"]) == 0
    out = capsys.readouterr().out
    assert f"not run: {'dummy and subproc' if 'scan' in backends else 'scan and jax-vec'}: " in out
    assert why in out
    assert "fastest here: --backend " in out
    names = [line.split()[1] for line in out.splitlines() if line.startswith("│")]
    assert names == backends
    assert ("fastest as a VecEnv: --backend jax-vec --num-envs 1" in out) == (
        "scan" in backends and "fastest here: --backend scan" in out
    )


def only_without_workers(backends, num_envs, most):
    del most
    names = [name for name in ("dummy", "jax-vec", "scan") if name in backends]
    return [bench.Setting(name, n, None) for n in num_envs for name in names]


def test_workers_go_from_one_to_the_cores_and_never_beyond_the_environments():
    settings = bench._settings(["dummy", "subproc"], [4, 64], 12)
    workers = {n: [s.num_workers for s in settings if s.num_envs == n] for n in (4, 64)}
    assert workers == {4: [None, 1, 2, 4], 64: [None, 1, 2, 4, 8, 12]}


def test_an_environment_that_nobody_knows_is_one_line(capsys):
    line = ended(capsys, 2, "bench", "Nothing-v0")
    assert "scan and jax-vec: " in line
    assert "dummy and subproc: " in line
