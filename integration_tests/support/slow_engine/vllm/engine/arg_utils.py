"""The arguments of an engine: the stand-in takes none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EngineArgs:
    pass
