"""How compiled rollouts scale over devices, what a step costs, and what that predicts for larger machines.

    python examples/benchmarks/scale.py [--clock cpu] [--json FILE]

CartPole with every layer on, as one `lax.scan`. The number of CPU devices is fixed when JAX starts, so that a
process stands for each of 1, 2 and 4 devices; all of them compile first, then their runs take turns, and
figures are medians. Each device computes in one thread. With `update="step"` the statistics of all rows are
reduced over the devices in every step, with "rollout" once a run.

On a machine with other work, `--clock cpu` counts processor time in place of the clock's, divided by the
devices: it leaves out what others take, and also what a device waits for another. An idle machine must
confirm it by the clock, with a core for each device.

The model is `seconds = fixed + per_row * N / devices + per_reduction * reductions`, fitted to relative
errors. Predictions multiply it with assumptions, which are printed: they are no measurements.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

COST, STRONG, WEAK = [2**k for k in range(10, 17)], 16384, 8192
FLAGS = "--xla_cpu_multi_thread_eigen=false"

# What predictions rest on beside the fit. Latencies are of small all-reduces.
ASSUMED = {
    "bandwidth of a GPU's memory, GB/s": 3350.0,
    "share of it that a step reaches": 0.5,
    "kernels a step on a GPU": 40.0,
    "launch of a kernel, us": 3.0,
    "reduction over 8 GPUs of a machine, us": 20.0,
    "rows on each GPU": 131072.0,
    "nodes": 64.0,
    "cores of a node, each as the one here": 32.0,
    "rows on each core": 4096.0,
    "network, one hop of a reduction, us": 25.0,
    "steps of a rollout": 128.0,
}


def worker(num_devices: int, programs: list[tuple[str, int]], num_steps: int) -> None:
    """Compiles programs on some devices, then runs the one whose number comes in, and prints its seconds."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", num_devices)
    runs = []
    for update, num_envs in programs:
        compiled, start = program(update, num_envs, num_steps, num_devices)
        jax.block_until_ready(compiled(start))
        runs.append((compiled, start))
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
        facts = {"reductions": reductions(compiled.as_text()), "bytes": size / num_envs}
        print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        compiled, start = runs[int(line)]
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(compiled(start))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps([wall / num_steps, cpu / num_steps / num_devices]), flush=True)


def program(update: str, num_envs: int, num_steps: int, num_devices: int) -> tuple[Any, Any]:
    """Returns a compiled rollout, and what it starts from."""
    import jax
    import jax.numpy as jnp

    import jaxvec
    from jaxvec.envs import device_mesh, make, shard
    from jaxvec.random import hash_key

    policy_of: Any = update  # "step" or "rollout"
    env = jaxvec.wrap(
        jaxvec.vectorize(make("CartPole-v1"), num_envs),
        jaxvec.episode_statistics(),
        jaxvec.normalize_observation(update=policy_of),
        jaxvec.normalize_reward(update=policy_of),
        jaxvec.frame_stack(4),
    )
    if num_devices > 1:
        env = shard(env, device_mesh(num_devices))
    probe = jnp.asarray([0.6, -1.1, 0.9, 1.4, -0.3, 0.2, -0.8, 0.5] * 2, jnp.float32)

    def policy(key: Any, obs: Any) -> Any:
        return (obs @ probe > 0).astype(jnp.int32)

    def collect(obs: Any, action: Any, timestep: Any) -> Any:
        """Reads all that a learner reads, so that nothing is dead; a sum for each device needs no talk."""
        episode = timestep.info["episode"]
        rows = action + timestep.reward + jnp.where(timestep.done, episode["r"] + episode["l"], 0)
        return (rows + timestep.final_obs.sum(-1)).reshape(num_devices, -1).sum(1)

    def run(start: Any) -> Any:
        return jaxvec.rollout(env, policy, None, num_steps, start=start, collect=collect)

    start, _ = jaxvec.rollout(env, policy, hash_key(0), 1)
    return jax.jit(run).lower(start).compile(), start


def reductions(text: str) -> int:
    """Returns how many collectives the loop of a compiled rollout has."""
    loops = [part for part in re.split(r"\n(?=%|ENTRY)", text) if not part.startswith("ENTRY")]
    return len(re.findall(r"= .*\b(?:all-|reduce-scatter|collective-)[\w-]*\(", "\n".join(loops)))


def measured(plan: dict[int, list[tuple[str, int]]], num_steps: int, rounds: int) -> list[Any]:
    """Runs the programs of all processes in turn; returns a record for each.

    Args:
      plan: for each number of devices its programs: how statistics are updated, and N.
      num_steps: T.
      rounds: how often each is run.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
    processes, records = {}, []
    try:
        for devices, programs in plan.items():
            words = json.dumps([devices, programs, num_steps])
            processes[devices] = process = subprocess.Popen(
                [sys.executable, __file__, "--worker", words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            # One after the other: compilations at once would only take turns.
            for number, (update, num_envs) in enumerate(programs):
                facts = json.loads(_answer(process))
                record = {"devices": devices, "update": update, "num_envs": num_envs, **facts}
                records.append({**record, "number": number, "wall": [], "cpu": []})
        for _ in range(rounds):
            for record in records:
                process = processes[record["devices"]]
                assert process.stdin is not None
                process.stdin.write(f"{record['number']}\n")
                process.stdin.flush()
                wall, cpu = json.loads(_answer(process))
                record["wall"].append(wall)
                record["cpu"].append(cpu)
    finally:
        for process in processes.values():
            process.communicate()  # the end of its input ends it
    for record in records:
        del record["number"]
        record.update({clock: statistics.median(record[clock]) for clock in ("wall", "cpu")})
    return records


def _answer(process: Any) -> str:
    answer: str = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"a worker process ended with exit code {process.wait()}; see above")
    return answer


def fitted(records: list[Any], clock: str) -> dict[str, float]:
    """Fits the model; returns its terms in seconds, and the largest relative error."""
    # One device reduces nothing: XLA leaves its collectives out.
    rows = np.array(
        [[1, each["num_envs"] / each["devices"], each["reductions"]] for each in records]
    )
    seconds = np.array([each[clock] for each in records])
    terms = np.linalg.lstsq(rows / seconds[:, None], np.ones(len(rows)), rcond=None)[0]
    error = float(np.abs(rows @ terms / seconds - 1).max())
    names = ("fixed", "per_row", "per_reduction")
    return {**dict(zip(names, map(float, terms), strict=True)), "largest_error": error}


def predicted(model: dict[str, float], bytes_per_row: float, reduced: int) -> dict[str, Any]:
    """Returns environment steps a second that the model and the assumptions give.

    Args:
      model: of `fitted`.
      bytes_per_row: what a row's state takes.
      reduced: reductions a step with `update="step"`.
    """
    a, micro = ASSUMED, 1e-6
    rows = a["rows on each GPU"]
    moved = 2 * bytes_per_row * rows / (a["bandwidth of a GPU's memory, GB/s"] * 1e9)
    gpu = a["kernels a step on a GPU"] * a["launch of a kernel, us"] * micro
    gpu += moved / a["share of it that a step reaches"]
    across = a["reduction over 8 GPUs of a machine, us"] * micro

    node_rows = a["cores of a node, each as the one here"] * a["rows on each core"]
    node = max(model["fixed"], 0.0) + model["per_row"] * a["rows on each core"]
    hops = np.ceil(np.log2(a["nodes"])) * a["network, one hop of a reduction, us"] * micro
    hops += max(model["per_reduction"], 0.0)
    often = 1 / a["steps of a rollout"]
    return {
        f"{place}, update={update!r}": rate / (step + reduced * reduction * share)
        for place, rate, step, reduction in (
            ("8 GPUs", 8 * rows, gpu, across),
            (f"{a['nodes']:.0f} nodes", a["nodes"] * node_rows, node, float(hops)),
        )
        for update, share in (("step", 1.0), ("rollout", often))
    }


def ray_actors(counts: list[int], num_steps: int, rounds: int) -> list[dict[str, Any]]:
    """Steps CartPoles of gymnasium's in actors of Ray, 16 in each: by the step, and 16 steps a call."""
    import gymnasium as gym
    import ray  # pyright: ignore[reportMissingImports]  # as of an extra, it may be missing

    from jaxvec import RayVecEnv, rollout_in_actors

    ray.init(num_cpus=max(counts), include_dashboard=False, log_to_driver=False)
    try:
        venvs = {
            count: RayVecEnv([lambda: gym.make("CartPole-v1")] * (16 * count), num_actors=count)
            for count in counts
        }

        def stepped(venv: Any) -> None:
            for _ in range(num_steps):
                venv.step(np.zeros(venv.num_envs, int))

        def chunked(venv: Any) -> None:
            rollout_in_actors(venv, left, num_steps)

        seconds: dict[tuple[int, Any], list[float]] = {}
        for venv in venvs.values():
            venv.reset()
            stepped(venv)
            chunked(venv)
        for _ in range(rounds):
            for count, venv in venvs.items():
                for call in (stepped, chunked):
                    began = time.perf_counter()
                    call(venv)
                    spent = (time.perf_counter() - began) / num_steps
                    seconds.setdefault((count, call), []).append(spent)
        medians = {key: statistics.median(each) for key, each in seconds.items()}
        for venv in venvs.values():
            venv.close()
    finally:
        ray.shutdown()
    return [
        {"actors": count, "step": medians[count, stepped], "chunk": medians[count, chunked]}
        for count in counts
    ]


def left(rng: np.random.Generator, obs: Any) -> Any:
    """A policy that costs nothing."""
    return np.zeros(len(obs), int)


def show(report: dict[str, Any]) -> None:
    """Prints a report."""
    clock, found = report["clock"], report["records"]
    print(f"by {clock} time; us are of a vector step, ns of an environment's step\n")
    print("devices  update         N  reductions a step         us     ns/step   M steps/s")
    for each in found:
        seconds, num_envs = each[clock], each["num_envs"]
        print(
            f"{each['devices']:7d}  {each['update']:8s} {num_envs:7d} {each['reductions']:18d} "
            f"{seconds * 1e6:10.1f} {seconds / num_envs * 1e9:11.2f} {num_envs / seconds / 1e6:11.2f}"
        )
    print()
    for name, ratio in report["ratios"].items():
        print(f"{name}: {ratio:.2f}")
    model = report["model"]
    print(
        f"\nfit: {model['fixed'] * 1e6:.1f} us + {model['per_row'] * 1e9:.3f} ns a row + "
        f"{model['per_reduction'] * 1e6:.1f} us a reduction, within {model['largest_error']:.0%}"
    )
    for each in report["ray"]:
        rate = 16 * each["actors"]
        print(
            f"Ray, {each['actors']} actors of 16 CartPoles each, by the clock: "
            f"{rate / each['step'] / 1e3:.1f} k steps/s by the step, "
            f"{rate / each['chunk'] / 1e3:.1f} k with many steps a call"
        )
    print("\nPredicted, M steps/s, if these assumptions hold (none of them was measured):")
    for name, value in report["assumed"].items():
        print(f"  {value:10g}  {name}")
    for name, rate in report["predicted"].items():
        print(f"  {rate / 1e6:10.0f}  {name}")


def main() -> None:
    """Measures, fits, predicts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--num-steps", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the report there too")
    parser.add_argument("--tiny", action="store_true", help="to see that it works: small and short")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*json.loads(options.worker))
        return
    cost, strong, weak, counts = COST, STRONG, WEAK, (1, 2, 4)
    rounds, num_steps = options.rounds, options.num_steps
    if options.tiny:
        cost, strong, weak, counts, rounds, num_steps = [32, 64], 64, 32, (1, 2), 1, 4
    plan: dict[int, list[tuple[str, int]]] = {}
    for devices in counts:
        programs = [("step", num_envs) for num_envs in (cost if devices == 1 else ())]
        programs += [("step", strong), ("rollout", strong), ("step", weak * devices)]
        plan[devices] = list(dict.fromkeys(programs))
    records = measured(plan, num_steps, rounds)
    clock = options.clock
    at = {(each["devices"], each["update"], each["num_envs"]): each[clock] for each in records}
    # A process of D devices on the CPU's clock: its time is a device's share, as if each had a core.
    ratios = {
        f"strong, N={strong}, {devices} devices against 1, update={update!r}": at[1, update, strong]
        / at[devices, update, strong]
        for update in ("step", "rollout")
        for devices in counts[1:]
    }
    for devices in counts[1:]:
        scaled = devices * at[1, "step", weak] / at[devices, "step", weak * devices]
        ratios[f"weak, N={weak} a device, {devices} devices against 1"] = scaled
    low, high = cost[1 if len(cost) > 2 else 0], cost[-1]
    per_row = [at[1, "step", num_envs] / num_envs for num_envs in (low, high)]
    ratios[f"cost of an environment's step, N={high} against N={low}"] = per_row[1] / per_row[0]
    model = fitted(records, clock)
    report = {
        "clock": clock,
        "records": records,
        "ratios": ratios,
        "model": model,
        "ray": [],
        "assumed": ASSUMED,
        "predicted": predicted(
            model, records[0]["bytes"], max(each["reductions"] for each in records)
        ),
    }
    if find_spec("ray") is not None and not options.tiny:
        report["ray"] = ray_actors([1, 2, 4], 16, rounds)
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
