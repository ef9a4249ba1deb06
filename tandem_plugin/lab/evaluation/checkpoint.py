"""A model of an evaluation: its name, where it lies, and a fingerprint of what it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import check_model
from tandem_plugin.files.checkpoints import checkpoint_folder, fingerprint_checkpoint
from tandem_plugin.lab.evaluation.benchmark import checked_name
from tandem_plugin.lab.evaluation.model_names import name_of

__all__ = ["Checkpoint", "find_checkpoint", "fingerprint_folder", "pieces_of"]


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
    """A model from ``NAME=PATH``, a folder, or a name on the Hugging Face Hub.

    Without a name it is called by its run and step, or its folder. Raises :class:`EvaluationError`
    or :class:`ConfigError` where there is no model.
    """
    name, equals, path = given.partition("=")
    if not equals:
        name, path = name_of(given), given
    if not Path(path).is_dir():
        check_model(path, "model")
    resolved = checkpoint_folder(path).resolve()
    return Checkpoint(checked_name(name, "model"), str(resolved), fingerprint_folder(resolved))


def fingerprint_folder(folder: Path) -> str:
    """The fingerprint of a checkpoint's folder: see :func:`fingerprint_checkpoint`.

    Raises :class:`EvaluationError` for a folder without a ``config.json`` or weights.
    """
    names = [file.name for file in folder.iterdir()]
    if "config.json" not in names or not any(n.endswith((".safetensors", ".bin")) for n in names):
        raise EvaluationError(
            f"{str(folder)!r} is no checkpoint: it has no config.json or no weights "
            "(.safetensors or .bin). Give the folder of a Hugging Face model."
        )
    return fingerprint_checkpoint(folder)


def pieces_of(path: str) -> tuple[str, ...]:
    """The vocabulary of the model that lies there: the piece of every token id."""
    from tandem_plugin.boundaries import Vocabulary

    return Vocabulary.from_path(path).pieces


def check_same_vocabulary(senior: Checkpoint, junior: Checkpoint) -> None:
    """Raise :class:`EvaluationError` where the one cannot read the other's token ids."""
    if pieces_of(senior.path) != pieces_of(junior.path):
        raise EvaluationError(
            f"{senior.name!r} and {junior.name!r} have different vocabularies: the one cannot read "
            "the other's token ids. Choose a junior with the senior's tokenizer."
        )
