"""Looks which processes of Ray a program has started."""

import os
from pathlib import Path


def _stat(pid):
    """Returns title, state and parent of a process; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        title = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return None
    state, parent = text.rsplit(")", 1)[1].split()[:2]
    return title, state, int(parent)


def descendants(pid):
    """Returns the titles of all processes that run below one, by process id."""
    all_of_them = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    running = {each: stat for each, stat in all_of_them.items() if stat and stat[1] != "Z"}
    found, last = {}, {pid}
    while last:
        below = {each: stat for each, stat in running.items() if stat[2] in last}
        found |= {each: stat[0] for each, stat in below.items()}
        last = set(below)
    return found


def actors_of(pid):
    """Returns the process ids of the actors that a program's Ray runs for jaxvec."""
    return {each for each, title in descendants(pid).items() if "GroupActor" in title}
