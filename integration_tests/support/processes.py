"""Processes of a session, to see that none outlives a command."""

from __future__ import annotations

from pathlib import Path


def members(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = stat.read_text().rpartition(") ")[2].split()[:4]
        except OSError:
            continue  # it ended just now
        if int(of_session) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found
