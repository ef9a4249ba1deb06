"""What a checkpoint is called where nobody named it: by its method and step, not by its folder."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["name_of", "step_of"]

_STEP = re.compile(r"(?:global[_-]?step|step|checkpoint|iter)[_-]?(\d+)(?:[_-]hf)?", re.IGNORECASE)
"""A folder of one training step, as verl, OpenRLHF and transformers name it."""

_INNER = {
    *("actor", "huggingface", "hf", "hf_model", "merged", "model", "policy", "weights"),
    *("ckpt", "checkpoint", "checkpoints", "latest", "best", "snapshots", "output", "outputs"),
}
"""Folders that trainers and tools put between a run's folder and its weights."""

_HASH = re.compile(r"[0-9a-f]{16,64}")
_HUB = re.compile(r"models--(?:.*--)?([^-].*)")
"""A model's folder in the cache of the Hub."""


def step_of(path: str) -> int | None:
    """The training step that a checkpoint's path names; None where it names none."""
    for part in reversed(Path(path).parts):
        if found := _STEP.fullmatch(part):
            return int(found[1])
    return None


def name_of(path: str) -> str:
    """``runs/trl/global_step_100/actor/huggingface`` is ``trl-step-100``.

    The innermost folder that says something, and the step; the folder's own name where none does.
    """
    parts = Path(path).parts
    for part in reversed(parts):
        if hub := _HUB.fullmatch(part):
            return hub[1]
        if part.lower() in _INNER or _STEP.fullmatch(part) or _HASH.fullmatch(part):
            continue
        step = step_of(path)
        return part if step is None or part == "/" else f"{part}-step-{step}"
    return Path(path).name
