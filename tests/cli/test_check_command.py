"""`jaxvec check`: a good environment, broken ones, and none at all."""

import json
import textwrap

import pytest

from jaxvec.cli import main

MODULE = """
    import jax.numpy as jnp
    from jaxvec.envs import make

    def outside():
        # Its observations leave their space.
        env = make("CartPole-v1")

        def step(key, state, action, params):
            state, obs, *rest = env.step(key, state, action, params)
            return state, obs + 100.0, *rest

        return env._replace(step=step)

    def changes_shape():
        env = make("CartPole-v1")

        def step(key, state, action, params):
            state, obs, *rest = env.step(key, state, action, params)
            return (state, jnp.zeros(3)), obs, *rest

        return env._replace(step=step)
"""


@pytest.fixture
def _users_module(tmp_path, monkeypatch):
    (tmp_path / "module_to_check.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_an_environment_that_keeps_the_laws_ends_with_code_0(capsys):
    assert main(["check", "CartPole-v1", "--num-steps", "50"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("CartPole-v1: all laws hold\n")
    assert "BROKEN" not in out
    assert err == ""


@pytest.mark.usefixtures("_users_module")
@pytest.mark.parametrize(
    ("env", "law", "found"),
    [
        ("outside", "Every observation lies in the observation space", "which is not in Box"),
        ("changes_shape", "Reset and step return the same trees", "another structure"),
    ],
)
def test_a_broken_law_is_explained_and_ends_with_code_1(env, law, found, capsys):
    words = ["check", f"module_to_check:{env}", "--num-envs", "4", "--num-steps", "20"]
    assert main(words) == 1
    out = capsys.readouterr().out
    broken = out[out.index(f"BROKEN {law}") :].splitlines()
    assert found in broken[1]
    assert f"module_to_check:{env}: " in broken[-1]

    assert main([*words, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["holds"] is False
    told = [each for each in report["laws"] if not each["holds"]]
    assert any(found in each["detail"] for each in told)


@pytest.mark.parametrize("env", ["CartPole-v0", "no_module:env", "math:pi"])
def test_what_is_no_environment_is_one_line_and_code_2(env, capsys):
    assert main(["check", env]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
