"""What of the machine a run needs: GPUs, memory, disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Card", "free_disk", "graphics_cards", "host_memory"]

MIB = 2**20
_QUERY = "name,memory.total,memory.free,driver_version"
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Card:
    """One NVIDIA GPU, as its driver's ``nvidia-smi`` shows it."""

    name: str
    total: int
    free: int
    """Bytes."""
    driver: str


def graphics_cards() -> tuple[Card, ...]:
    """The NVIDIA GPUs of this machine; none where there is no driver, or it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in found.splitlines()]
    return tuple(
        Card(name, int(total) * MIB, int(free) * MIB, driver)
        for name, total, free, driver in (row for row in rows if len(row) == 4)
        if total.isdigit() and free.isdigit()
    )


def host_memory() -> tuple[int, int] | None:
    """Bytes of this machine's memory, all and what is available; None where Linux does not say.

    Inside a container with less, that container's.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, available = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, ValueError, LookupError):
        return None
    limit, used = _control_group()
    if limit is not None and limit < total:
        return limit, max(0, min(available, limit - used))
    return total, available


def _control_group() -> tuple[int | None, int]:
    """The limit of this control group's memory, and what is used of it."""
    folder = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return int((folder / limit).read_text()), int((folder / used).read_text())
        except (OSError, ValueError):  # "max": there is no limit
            continue
    return None, 0


def free_disk(folder: Path) -> int | None:
    """Free bytes on the disk of a folder that may not be there yet; None where unknown."""
    place = folder
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None
