"""All benchmarks in one run: one table, the missed targets first, JSON, and a plot.

    python examples/benchmarks/run.py --quick                      # some minutes
    python examples/benchmarks/run.py --json run.json --plot run.png
    python examples/benchmarks/run.py --only scan edge             # some sections

Each section is a page of its own beside this one, and runs in a process of its own: what one sets up for JAX
or loads (torch) does not touch the others. In it jaxvec and its peers take turns, after their results were
seen to be equal. A figure is the median over the rounds; one target is reached or missed by it. Absolute
figures move with the machine and the hour: compare ratios, of several runs.

It needs rich and matplotlib (`pip install 'jaxvec[cli]'`). Peers that are not installed are named at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import as_json, plot, print_table
from shared import LeftOut, Row

SECTIONS = {
    "scan": "compiled_scan",
    "devices": "c_loop",
    "gymnax": "gymnax_step",
    "edge": "host_edge",
    "bridge": "vector_bridge",
    "classic": "classic",
    "wrappers": "host_wrappers",
    "spaces": "spaces",
    "startup": "startup",
    "ray": "ray_actors",
}
"""Names, and the pages that have them."""

MINUTES = 20  # that a section may take; it takes far less


def main() -> None:
    """Runs the sections that are asked for."""
    options = parsed()
    rows: list[Row | LeftOut] = []
    began, load = time.time(), os.getloadavg()
    for section in options.only:
        started = time.perf_counter()
        print(f"{section} ...", end=" ", file=sys.stderr, flush=True)
        rows += section_rows(section, options.effort)
        print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    run = {
        "effort": options.effort,
        "sections": options.only,
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)),
        "seconds": time.time() - began,
        "load": {"before": load, "after": os.getloadavg()},
    }
    print_table(rows)
    print(
        f"{run['seconds']:.0f} s; load of the machine {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after"
    )
    if options.json is not None:
        options.json.write_text(as_json(rows, run))
    if options.plot is not None:
        plot(rows, options.plot)
    if any(isinstance(row, LeftOut) and row.why.startswith("failed") for row in rows):
        raise SystemExit("A section failed: see above.")


def section_rows(section: str, effort: str) -> list[Row | LeftOut]:
    """Runs a section in a process of its own; what it had measured before a failure is kept."""
    script = Path(__file__).with_name(f"{SECTIONS[section]}.py")
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "lines.jsonl")
        lines.touch()
        command = [sys.executable, str(script), "--lines", str(lines)]
        command += [] if effort == "full" else [f"--{effort}"]
        with Path(folder, "errors.txt").open("w+") as errors:
            try:
                done = subprocess.run(
                    command, stderr=errors, stdout=errors, timeout=60 * MINUTES, check=False
                )
                ended = "" if done.returncode == 0 else f"it ended with {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"it took more than {MINUTES} minutes"
            errors.seek(0)
            text = errors.read()
        kinds = {"Row": Row, "LeftOut": LeftOut}
        found = [json.loads(line) for line in lines.read_text().splitlines()]
        rows: list[Row | LeftOut] = [kinds[kind](**fields) for kind, fields in found]
    if ended:
        print(text, file=sys.stderr)
        last = (text.strip().splitlines() or ["no word"])[-1]
        rows.append(LeftOut(section, "the rest of it", f"failed: {ended}: {last}"))
    return rows


def parsed() -> argparse.Namespace:
    title, _, details = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=title, epilog=details, formatter_class=form)
    add, effort = parser.add_argument, parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", action="store_const", dest="effort", const="quick", default="full"
    )
    effort.add_argument(
        "--tiny", action="store_const", dest="effort", const="tiny", help=argparse.SUPPRESS
    )
    add("--only", nargs="+", metavar="SECTION", choices=SECTIONS, default=list(SECTIONS))
    add("--json", type=Path, metavar="FILE", help="figures, machine and versions")
    add("--plot", type=Path, metavar="FILE.png", help="the ratios beside their targets")
    options = parser.parse_args()
    for path in (options.json, options.plot):  # found out before minutes have gone by
        if path is not None and not path.absolute().parent.is_dir():
            parser.error(f"{path}: there is no folder {path.absolute().parent}")
    return options


if __name__ == "__main__":
    main()
