"""`jaxvec rollout --devices`: the environments spread over several devices."""

import json
import subprocess
import sys

import jax
import pytest

from jaxvec.cli import main

jax.devices()  # the four of all tests: from now on there are no others
RUN = ["rollout", "CartPole-v1", "--num-envs", "16", "--num-steps", "60", "--json"]


def report(capsys, *options):
    assert main([*RUN, *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("backend", ["scan", "jax-vec"])
def test_the_same_episodes_end_on_one_device_and_on_two(backend, capsys):
    options = ["--backend", backend, "--normalize", "--frame-stack", "2"]
    found, wanted = report(capsys, *options, "--devices", "2"), report(capsys, *options)
    assert found["episodes"] == wanted["episodes"] > 10
    assert found["returns"] == wanted["returns"]


def test_a_command_of_its_own_makes_the_devices_of_a_cpu():
    command = [sys.executable, "-m", "jaxvec", *RUN, "--devices", "3", "--num-envs", "9"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["env_steps"] == 9 * 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--devices", "5", "--num-envs", "10"], "JAX sees 4 cpu"),
        (["--devices", "3"], "--num-envs 16 does not divide among --devices 3"),
        (["--devices", "2", "--backend", "dummy"], "--devices is for --backend scan and jax-vec"),
        (["--devices", "0"], "Invalid value for '--devices'"),
    ],
)
def test_devices_that_cannot_be_had_are_refused(options, words, capsys):
    assert main([*RUN, *options]) == 2
    assert words in capsys.readouterr().err
