"""The runner of examples/benchmarks: what it shows, and what it does without a peer. No time is looked at."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"


@pytest.fixture
def page(monkeypatch):
    """Imports a page of the benchmarks as it sees itself when it is run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]


def test_a_run_shows_a_table_and_writes_json_and_a_plot(tmp_path):
    where = tmp_path / "run.json", tmp_path / "run.png"
    command = [sys.executable, str(FOLDER / "run.py"), "--tiny", "--only", "spaces"]
    command += ["--json", str(where[0]), "--plot", str(where[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "of 7 targets reached." in done.stdout
    found = json.loads(where[0].read_text())
    assert found["machine"]["cores"] >= 1
    assert {"python", "jax", "numpy", "gymnasium"} <= set(found["versions"])
    assert found["run"]["sections"] == ["spaces"]
    assert len(found["rows"]) == 7
    for row in found["rows"]:
        assert row["section"] == "spaces"
        assert row["what"].split(",")[0] in done.stdout
        assert row["ours"] > 0
        assert row["theirs"] > 0
        assert 0 < row["low"] <= row["figure"] <= row["high"] < math.inf
        assert row["rounds"] == 6
        assert row["score"] == pytest.approx(row["figure"] / row["target"])
    assert len(found["missed"]) == sum(row["score"] < 1 for row in found["rows"])
    assert where[1].read_bytes().startswith(b"\x89PNG")


def test_missed_targets_come_first_and_a_ratio_of_times_is_missed_above_its_target(page, capsys):
    shared, report = page("shared"), page("report")
    scale = 1e6, "us"
    rows = [
        shared.compared("a", "no target", "peer", [1.0], [2.0], scale),
        shared.compared("a", "reached", "peer", [1.0], [2.0], scale, 1.5),
        shared.compared("a", "just missed", "peer", [1.0], [2.0], scale, 2.5),
        shared.compared("a", "missed by far", "peer", [2.0], [1.0], scale, 0.5, kind=shared.TIME),
        shared.amount("a", "seconds", [3.0], "s", 1.0, peer="base", theirs=[1.5]),
        shared.LeftOut("b", "all of it", "peer is not installed"),
    ]
    assert [row.figure for row in rows[:-1]] == [2, 2, 2, 2, 1.5]
    order = [row.what for row in report.in_order(rows)]
    assert order == ["missed by far", "seconds", "just missed", "reached", "no target"]
    report.print_table(rows)
    shown = capsys.readouterr().out
    assert [shown.index(what) for what in order] == sorted(shown.index(what) for what in order)
    assert "1 of 4 targets reached." in shown
    assert "left out: b: all of it: peer is not installed" in shown


@pytest.mark.parametrize(
    ("section", "library"),
    [
        ("gymnax_step", "gymnax"),
        ("vector_bridge", "envpool"),
        ("ray_actors", "ray"),
        ("host_wrappers", "stable_baselines3"),
        ("classic", "stable_baselines3"),
    ],
)
def test_a_missing_peer_is_a_message(page, monkeypatch, section, library):
    shared, own = page("shared"), page(section)
    monkeypatch.setattr(shared, "find_spec", lambda name: None)
    (left_out,) = own.measure(shared.EFFORTS["tiny"])
    assert left_out.section == own.SECTION
    assert f"{library} is not installed: pip install" in left_out.why


def test_a_section_that_fails_is_named_and_the_others_go_on(page, monkeypatch, tmp_path, capsys):
    run = page("run")
    monkeypatch.setitem(run.SECTIONS, "spaces", "no_such_page")
    (left_out,) = run.section_rows("spaces", "tiny")
    assert left_out.section == "spaces"
    assert left_out.why.startswith("failed: it ended with 2")
    assert "no_such_page" in capsys.readouterr().err


def test_every_section_has_a_page_that_knows_its_name(page):
    for section, name in page("run").SECTIONS.items():
        assert f'SECTION = "{section}"' in (FOLDER / f"{name}.py").read_text()
