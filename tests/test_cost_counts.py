"""What a step costs, in counts that can be repeated: a test that fails before a benchmark could say why.

Operations of compiled programs are pinned for one version of jax, calls of Python for one of Python; under
another version a test is skipped and says what it counted. A count that grew is a cost that users pay in
every step: look where it comes from, and put the new number here only if it is worth it. One that fell is
put here so that it stays.

System calls are not counted: a worker waits by turning first, so that their number is chance.
"""

import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import jaxvec
from jaxvec import VecFrameStack, VecMonitor, VecNormalize
from jaxvec.envs import begin
from jaxvec.random import hash_key
from jaxvec.vec import DummyVecEnv, JaxVecEnv

N = 64  # few enough that XLA splits nothing among however many cores there are
LIMIT = 5  # steps of an episode: all rows end at once
PACKAGE = str(Path(jaxvec.__file__).parent)

COMPILED = {
    "0.10.2": {
        "rollout": {"conditional": 1, "copy": 20, "fusion": 45},
        "JaxVecEnv": {"concatenate": 1, "conditional": 1, "copy": 4, "fusion": 39},
        "JaxVecEnv, bare": {"conditional": 1, "copy": 1, "fusion": 7},
    }
}
"""By version of jax: of the scan's body, and of the whole step."""

CALLS = {
    (3, 11): {
        "DummyVecEnv": {"step": 80, "end": 175},
        "DummyVecEnv, 3 layers": {"step": 217, "end": 346},
        "JaxVecEnv": {"step": 28, "end": 28},
        "JaxVecEnv, 3 layers": {"step": 38, "end": 87},
    }
}
"""By version of Python: calls that jaxvec's own code makes in a step of 8 environments."""

EDGE = {
    "bare": {"state buffers": 1, "shown buffers": 2, "buffers copied": 1, "bytes copied": 1536},
    "3 layers": {"state buffers": 4, "shown buffers": 2, "buffers copied": 1, "bytes copied": 4608},
}
"""What goes in and out of a compiled step of N environments, and what is copied for the caller."""


def three_layers(venv):
    return VecNormalize(VecFrameStack(VecMonitor(venv), 4))


def compiled_venv(num_envs, layers=lambda venv: venv):
    batched = jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), num_envs, max_episode_steps=LIMIT)
    venv = layers(JaxVecEnv(batched))
    venv.reset()
    return venv


def classic_venv(num_envs, layers=lambda venv: venv):
    make = partial(gymnasium.make, "CartPole-v1", max_episode_steps=LIMIT)
    venv = layers(DummyVecEnv([make] * num_envs))
    venv.reset()
    return venv


def assert_as_before(found, pinned, version):
    """Every count is that of the table; a version that has no table is no failure."""
    if pinned is None:
        pytest.skip(f"nothing is pinned for {version}; counted here: {found}")
    assert found == pinned


def rollout_text():
    """Returns the compiled text of a rollout with every layer, nothing of which is unread."""
    env = jaxvec.wrap(
        jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), N),
        *(jaxvec.episode_statistics(), jaxvec.normalize_observation(), jaxvec.normalize_reward()),
        jaxvec.frame_stack(4),
    )

    def policy(key, obs):
        return (obs.sum(-1) > 0).astype("int32")

    def collect(obs, action, step):
        episode = step.info["episode"]
        ends = (episode["r"] + episode["l"]) * step.done
        rows = action + step.reward + step.truncated + ends
        return rows.sum() + step.final_obs.sum()

    def run(start):
        carry, kept = jaxvec.rollout(env, policy, None, 10, start=start, collect=collect)
        return carry.obs, kept

    start = jax.eval_shape(partial(begin, env, policy), hash_key(0))
    return jax.jit(run).lower(start).compile().as_text()


def step_text(layers):
    """Returns the compiled text of a step of a JaxVecEnv."""
    venv = compiled_venv(N, layers)
    venv.step(np.zeros(N, int))
    run = venv._run
    parts = tuple(owner._packed.buffers for owner in run._owners)
    return run._step._run.lower(parts, run._check(np.zeros(N, int))).compile().as_text()


def operations(text, *, of_loop):
    """Counts the instructions that run in each step: of the entry, or of the outermost loop's body."""
    blocks = {}
    for block in re.split(r"\n(?=%|ENTRY)", text):
        name = re.match(r"(?:ENTRY )?%?([\w.\-]+)", block)
        blocks["ENTRY" if block.startswith("ENTRY") else name[1]] = block
    block = blocks["ENTRY"]
    if of_loop:
        (body,) = re.findall(r" while\(.*body=%?([\w.\-]+)", block)
        block = blocks[body]
    kinds = Counter(
        re.findall(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][\w\-]*)\(", block, re.MULTILINE)
    )
    free = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
    return {kind: count for kind, count in sorted(kinds.items()) if kind not in free}


@pytest.mark.parametrize("name", ["rollout", "JaxVecEnv", "JaxVecEnv, bare"])
def test_a_compiled_step_has_as_many_operations_as_before(name):
    if name == "rollout":
        found = operations(rollout_text(), of_loop=True)
    else:
        layers = (lambda venv: venv) if "bare" in name else three_layers
        found = operations(step_text(layers), of_loop=False)
    assert found["fusion"] > 0, "the text is read wrongly"
    pinned = COMPILED.get(jax.__version__, {}).get(name)
    assert_as_before(found, pinned, f"jax {jax.__version__}")


@pytest.mark.parametrize("name", EDGE)
def test_as_many_buffers_and_bytes_cross_the_host_edge_as_before(name):
    venv = compiled_venv(N, three_layers if "layers" in name else lambda venv: venv)
    venv.step_async(np.zeros(N, int))
    owners, (_, results) = venv._run._owners, venv.unwrapped._pending
    found = {
        "state buffers": sum(len(owner._packed.buffers) for owner in owners),
        "shown buffers": len(results._every) + len(results._few),
        "buffers copied": len(results._every),
        "bytes copied": sum(buffer.nbytes for buffer in results._every),
    }
    obs, rewards, dones, _ = venv.step_wait()
    assert found["bytes copied"] >= obs.nbytes + rewards.nbytes + dones.nbytes
    assert_as_before(found, EDGE[name], "")


def calls_of(function):
    """Counts the calls that jaxvec's own code makes while a function runs: of Python and of C."""
    count = 0

    def tell(frame, event, argument):
        nonlocal count
        caller = frame.f_back if event == "call" else frame if event == "c_call" else None
        count += caller is not None and caller.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(tell)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", CALLS[3, 11])
def test_a_step_on_the_host_makes_as_many_calls_as_before(name):
    layers = three_layers if "layers" in name else lambda venv: venv
    venv = (compiled_venv if name.startswith("Jax") else classic_venv)(8, layers)
    actions = np.zeros(8, int)
    counts, ends = [], []
    for _ in range(3 * LIMIT):
        shown = []
        counts.append(calls_of(lambda shown=shown: shown.append(venv.step(actions))))
        ends.append(bool(shown[0][2].any()))
    assert ends[LIMIT:] == ([False] * (LIMIT - 1) + [True]) * 2
    # The first episodes warm up; the second and third must count the same.
    assert counts[LIMIT : 2 * LIMIT] == counts[2 * LIMIT :]
    found = {"step": counts[-2], "end": counts[-1]}
    version = sys.version_info[:2]
    assert_as_before(found, CALLS.get(version, {}).get(name), f"Python {version}")
