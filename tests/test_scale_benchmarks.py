"""The benchmarks of scaling and of one accelerator: in their tiny modes, what they report."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.long


def printed(script: str, *options: str) -> str:
    """Runs a benchmark in its tiny mode."""
    command = [sys.executable, f"examples/benchmarks/{script}", "--tiny", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scale_reports_devices_a_model_and_predictions_with_their_assumptions(tmp_path):
    text = printed("scale.py", "--clock", "cpu", "--json", str(tmp_path / "report.json"))
    report = json.loads((tmp_path / "report.json").read_text())
    where = {(each["devices"], each["update"], each["num_envs"]) for each in report["records"]}
    assert where >= {(1, "step", 32), (1, "step", 64), (2, "step", 64), (2, "rollout", 64)}
    for each in report["records"]:
        talks = each["devices"] > 1 and each["update"] == "step"
        assert (each["reductions"] > 0) == talks
    assert report["model"].keys() == {"fixed", "per_row", "per_reduction", "largest_error"}
    assert len(report["ratios"]) == 4
    for name in (*report["ratios"], *report["assumed"], *report["predicted"]):
        assert name in text
    assert any("8 GPUs" in name for name in report["predicted"])
    assert any("64 nodes" in name for name in report["predicted"])


def test_gpu_checks_before_it_times_and_has_a_row_for_each_environment():
    text = printed("gpu.py", "--rounds", "1", "--bandwidth", "10", "--seconds", "3600")
    checks, table = text.split("\nenv ")
    assert re.findall(r"checked +(\S+):.* [1-9]\d* episodes", checks) == [
        "CartPole-v1",
        "Breakout-MinAtar-v1",
    ]
    for name in ("CartPole", "Breakout"):
        (row,) = re.findall(rf"^{name} .*$", table, re.MULTILINE)
        assert row.split()[1] == "32"
        assert "%" in row
    assert "no time was left" not in text
