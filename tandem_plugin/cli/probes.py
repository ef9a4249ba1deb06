"""Probes of vLLM and verl, each run in a process of its own.

A broken installation may crash, hang or fill stdout while it is imported, so the doctor only ever
runs this file as ``python -m tandem_plugin.cli.probes NAME``, with a time limit. A probe prints its
result as the last line that starts with the marker.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Probe", "run_probe"]

MARKER = "tandem-probe:"
TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found, or why it found nothing."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def run_probe(name: str, timeout_s: float = TIMEOUT_S) -> Probe:
    """Run the probe called ``name`` in a new process; never raises for what happens there."""
    command = [sys.executable, "-m", "tandem_plugin.cli.probes", name]
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
