"""`jaxvec rollout`: what it runs, writes and prints, and how it ends."""

import contextlib
import csv
import io
import json
import math
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

import jaxvec
from jaxvec.cli import main
from jaxvec.cli._rollout import Request, _progress
from jaxvec.core._checks import check_finite
from jaxvec.random import hash_key

N, T = 6, 101  # a prime: no equal pieces
MODULE = """
    import jax.numpy as jnp
    from gymnasium import spaces
    from jaxvec import Env
    from jaxvec.envs import make

    not_an_env = 3
    cart_pole = make("CartPole-v1")
    traces = []

    def make_cart_pole():
        return cart_pole

    def raises():
        raise RuntimeError("two\\nlines")

    def counts_traces(key, obs):
        traces.append(1)
        return jnp.zeros(len(obs), int)

    def wrong_shape(key, obs):
        return obs

    def policy_raises(key, obs):
        raise RuntimeError("no way")

    def counter(bad_obs, bad_reward=None):
        # Its observation is the number of its step; one step of an episode may go wrong.
        def reset(key, params):
            return jnp.int32(0), jnp.zeros(1), {}

        def step(key, state, action, params):
            state = state + 1
            obs = jnp.where(state == bad_obs, jnp.nan, jnp.float32(state))[None]
            reward = 1.0 if bad_reward is None else jnp.where(state == bad_reward, jnp.inf, 1.0)
            return state, obs, reward, False, False, {}

        return Env(reset, step, (), spaces.Box(-1e9, 1e9, (1,)), spaces.Discrete(2))

    def bad_obs():
        return counter(5)

    def bad_reward():
        return counter(-1, 70)

    def bad_first():
        return counter(-1)._replace(
            reset=lambda key, params: (jnp.int32(0), jnp.full(1, jnp.nan), {})
        )
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory with a user's module in it."""
    (tmp_path / "users_module.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "users_module", raising=False)
    return tmp_path


def command(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run with every option, and the same by one `rollout` of the public functions."""
    folder = tmp_path_factory.mktemp("whole")
    words = ("rollout", "CartPole-v1", "--num-envs", N, "--num-steps", T, "--frame-stack", 2)
    words += ("--normalize", "--seed", 3, "--time-limit", 30, "--json")
    words += ("--monitor", folder / "run.monitor.csv", "--plot", folder / "returns.png")
    words += ("--save-stats", folder / "stats.npz")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert command(*words) == 0

    env = jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), N, max_episode_steps=30)
    env = jaxvec.wrap(
        env,
        jaxvec.named_chain(
            check_finite=check_finite(),
            episode_statistics=jaxvec.episode_statistics(),
            frame_stack=jaxvec.frame_stack(2),
            normalize_observation=jaxvec.normalize_observation(),
            normalize_reward=jaxvec.normalize_reward(),
        ),
    )
    carry, (_, _, timestep) = jaxvec.rollout(env, jaxvec.random_policy(env), hash_key(3), T)
    ended = np.asarray(timestep.done)
    episodes = {name: np.asarray(timestep.info["episode"][name])[ended] for name in ("r", "l")}
    return folder, out.getvalue(), carry, episodes


def test_json_is_one_object_and_nothing_else(whole):
    _, out, _, _ = whole
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["layers"] == [
        *("check_finite", "episode_statistics", "frame_stack"),
        *("normalize_observation", "normalize_reward"),
    ]
    assert (report["env"], report["policy"], report["seed"]) == ("CartPole-v1", "random", 3)
    assert (report["num_envs"], report["num_steps"], report["env_steps"]) == (N, T, N * T)
    assert report["steps_per_second"] == pytest.approx(N * T / report["seconds"])
    assert report["compile_seconds"] > 0


def test_the_run_in_pieces_is_the_rollout_in_one(whole):
    _, out, _, episodes = whole
    report = json.loads(out)
    assert report["episodes"] == len(episodes["r"]) > 10
    for key, column in (("returns", "r"), ("lengths", "l")):
        values = episodes[column].astype(float)
        expected = {"mean": values.mean(), "min": values.min(), "max": values.max()}
        assert report[key] == pytest.approx(expected)


def test_the_monitor_file_has_the_form_of_stable_baselines3s(whole):
    folder, _, _, episodes = whole
    text = (folder / "run.monitor.csv").read_bytes().decode()
    header, columns, rest = text.split("\n", 2)
    assert header[0] == "#"
    assert set(json.loads(header[1:])) == {"t_start", "env_id"}
    assert json.loads(header[1:])["env_id"] == "CartPole-v1"
    assert columns == "r,l,t\r"
    assert rest.count("\r\n") == rest.count("\n") == len(episodes["r"])
    rows = list(csv.DictReader(rest.splitlines(), fieldnames=["r", "l", "t"]))
    assert [float(row["r"]) for row in rows] == episodes["r"].tolist()
    assert [int(row["l"]) for row in rows] == episodes["l"].tolist()
    times = [float(row["t"]) for row in rows]
    assert times == sorted(times)


def test_stable_baselines3_reads_the_monitor_file(whole):
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    folder, _, _, episodes = whole
    frame = monitor.load_results(str(folder))
    assert sorted(frame["r"]) == sorted(episodes["r"].tolist())
    assert sorted(frame["l"]) == sorted(episodes["l"].tolist())


def test_the_saved_statistics_are_those_of_the_run(whole):
    folder, _, carry, _ = whole
    layers = carry.env_state.layers
    moments = [
        layers["normalize_observation"].statistics.moments,
        layers["normalize_reward"].statistics.moments,
    ]
    fresh = jax.tree.map(jax.numpy.zeros_like, carry.env_state)
    loaded = jaxvec.io.load_statistics(folder / "stats.npz", fresh).layers
    for name, expected in zip(("normalize_observation", "normalize_reward"), moments, strict=True):
        found = loaded[name].statistics.moments
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.var, expected.var, rtol=1e-5)
        assert float(found.count) == float(expected.count)


def test_the_plot_is_a_picture(whole):
    assert (whole[0] / "returns.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_run_of_many_pieces_compiles_once(here, capsys):
    import users_module

    counts = []
    for num_steps in (4, T):
        users_module.traces.clear()
        words = (
            "--num-envs",
            2,
            "--num-steps",
            num_steps,
            "--policy",
            "users_module:counts_traces",
        )
        assert command("rollout", "users_module:cart_pole", *words) == 0
        counts.append(len(users_module.traces))
    assert counts[0] == counts[1] > 0
    capsys.readouterr()


def test_the_table_tells_steps_rate_compile_time_and_episodes(here, capsys):
    words = ("--num-envs", 4, "--num-steps", 20, "--time-limit", 5, "--monitor", here)
    assert command("rollout", "Pendulum-v1", *words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "environment steps │ 80" in out
    assert "episodes │ 16" in out
    assert "length, mean (min to max) │ 5.00 (5 to 5)" in out
    assert all(title in out for title in ("steps/s, without compiling", "time, compiling"))
    assert (here / "monitor.csv").read_text().count(",5,") == 16


def test_a_run_without_an_ended_episode_says_so(here, capsys):
    words = ("--num-envs", 1, "--num-steps", 3, "--plot", "empty.svg")
    assert command("rollout", "Pendulum-v1", *words) == 0
    assert capsys.readouterr().out.count("no episode ended") == 2
    assert "<svg" in Path("empty.svg").read_text()


BAD_INPUT = [
    (("Cartpole-v1",), "Did you mean 'CartPole-v1'?"),
    ((), "Missing argument"),
    (("CartPole-v1", "--num-envs", "0"), "--num-envs"),
    (("CartPole-v1", "--num-envs", "many"), "--num-envs"),
    (("CartPole-v1", "--num-steps", "-3"), "--num-steps"),
    (("CartPole-v1", "--frame-stack", "0"), "--frame-stack"),
    (("CartPole-v1", "--time-limit", "0"), "--time-limit"),
    (("CartPole-v1", "--colour", "red"), "--colour"),
    (("CartPole-v1", "--seed", "1.5"), "--seed"),
    (("CartPole-v1", "--policy", "greedy"), "--policy 'greedy' must be 'random' or"),
    (("CartPole-v1", "--policy", "no_module:f"), "No module named 'no_module'"),
    (("CartPole-v1", "--policy", "users_module:not_an_env"), "int 3, not a function"),
    (("CartPole-v1", "--policy", "users_module:wrong_shape"), "(1024, 4)"),
    (("CartPole-v1", "--policy", "users_module:policy_raises"), "users_module.py:25: Runtime"),
    (("users_module:nothing",), "has no attribute 'nothing'"),
    (("users_module:not_an_env",), "is int 3, not a jaxvec.Env"),
    (("users_module:raises",), "RuntimeError: two lines"),
    (("users_module:",), "must read 'module:attribute'"),
    (("no_module:env",), "No module named 'no_module'"),
    (("CartPole-v1", "--save-stats", "x.npz"), "nothing to save without --normalize"),
    (("CartPole-v1", "--plot", "x.docx"), "x.docx must end with one of"),
    (("CartPole-v1", "--plot", "no_folder/x.png"), "there is no folder 'no_folder'"),
    (("CartPole-v1", "--monitor", "no_folder/m.csv"), "there is no folder 'no_folder'"),
]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("words", "said"), BAD_INPUT, ids=[said for _, said in BAD_INPUT])
def test_bad_input_ends_with_one_clear_line_and_code_2(words, said, capsys):
    assert command("rollout", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("jaxvec: ")
    assert said in err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("bad_obs", "at step 4: check_finite: in row 0, obs[0] is nan"),
        ("bad_reward", "at step 69: check_finite: in row 0, reward is inf"),
        ("bad_first", "the first observation of row 0 is [nan]"),
    ],
)
def test_a_number_that_is_not_finite_ends_the_run_with_row_and_step(env, said, capsys):
    words = ("--num-envs", 3, "--num-steps", 90, "--normalize")
    assert command("rollout", f"users_module:{env}", *words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.usefixtures("here")
def test_an_image_environment_stacks_frames(capsys):
    words = ("--num-envs", 4, "--num-steps", 30, "--frame-stack", 4, "--json")
    assert command("rollout", "Breakout-MinAtar-v1", *words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["returns"]["mean"] is None or math.isfinite(report["returns"]["mean"])


def test_a_terminal_sees_a_bar_with_the_rate_and_the_time_left():
    seen = Console(force_terminal=True, width=100, file=io.StringIO())
    with _progress(
        seen, Request("Some-v0", 4, 1000, None, False, None, 0, "random", *[None] * 3)
    ) as go:
        go(1000)
        go(1000)
    told = seen.file.getvalue()
    assert all(each in told for each in ("Some-v0", "50%", "steps/s", ":"))
