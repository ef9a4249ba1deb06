"""A model of an evaluation: its name, where it lies, and a fingerprint of what it is."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import check_model
from tandem_plugin.files.checkpoints import checkpoint_folder, fingerprint_checkpoint
from tandem_plugin.lab.evaluation.benchmark import checked_name

__all__ = [
    "Checkpoint",
    "find_checkpoint",
    "fingerprint_folder",
    "name_of",
    "pieces_of",
    "step_of",
]

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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model. Its fingerprint is the same wherever it lies and whatever it is called."""

    name: str
    path: str
    fingerprint: str

    def settings(self) -> dict[str, str]:
        """What a result says of it."""
        return asdict(self)


def find_checkpoint(given: str) -> Checkpoint:
    """A model from ``NAME=PATH``, a folder, or a name on the Hugging Face Hub, or name@commit.

    Without a name it is called by its run and step, or its folder. Raises :class:`EvaluationError`
    or :class:`ConfigError` where there is no model.
    """
    name, equals, path = given.partition("=")
    if not equals:
        name, path = name_of(given), given
    revision = None
    if not Path(path).is_dir():
        path, _, revision = path.partition("@")
        check_model(path, "model")
    resolved = checkpoint_folder(path, revision or None).resolve()
    return Checkpoint(checked_name(name, "model"), str(resolved), fingerprint_folder(resolved))


def fingerprint_folder(folder: Path) -> str:
    """The fingerprint of a checkpoint's folder: see :func:`fingerprint_checkpoint`.

    Raises :class:`EvaluationError` for a folder without a ``config.json`` or weights.
    """
    names = [file.name for file in folder.iterdir()]
    if "config.json" not in names or not any(n.endswith((".safetensors", ".bin")) for n in names):
        raise EvaluationError("TP826", folder=folder)
    return fingerprint_checkpoint(folder)


def pieces_of(path: str) -> tuple[str, ...]:
    """The vocabulary of the model that lies there: the piece of every token id."""
    from tandem_plugin.boundaries import Vocabulary

    return Vocabulary.from_path(path).pieces


def check_same_vocabulary(senior: Checkpoint, junior: Checkpoint) -> None:
    """Raise :class:`EvaluationError` where the one cannot read the other's token ids."""
    if pieces_of(senior.path) != pieces_of(junior.path):
        raise EvaluationError("TP827", senior=senior.name, junior=junior.name)


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
