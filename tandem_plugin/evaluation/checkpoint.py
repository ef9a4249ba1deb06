"""A model of an evaluation: its name, where it lies, and a fingerprint of what it is."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation.benchmark import checked_name
from tandem_plugin.evaluation.model_names import name_of
from tandem_plugin.files import check_model

__all__ = ["Checkpoint", "find_checkpoint", "fingerprint_folder", "pieces_of"]

_PATTERNS = ("*.safetensors", "*.bin", "*.json", "*.model", "*.tiktoken", "*.jinja", "merges.txt")
_BLOCK = 2**22


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
    folder = Path(path) if Path(path).is_dir() else _downloaded(path)
    resolved = folder.resolve()
    return Checkpoint(checked_name(name, "model"), str(resolved), fingerprint_folder(resolved))


def fingerprint_folder(folder: Path) -> str:
    """16 hexadecimal digits of SHA-256 over the contents of a checkpoint's files.

    Weights, configuration and tokenizer count, by name and content. Raises
    :class:`EvaluationError` for a folder without a ``config.json`` or weights.
    """
    files = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern)})
    names = {file.name for file in files}
    if "config.json" not in names or not any(n.endswith((".safetensors", ".bin")) for n in names):
        raise EvaluationError(
            f"{str(folder)!r} is no checkpoint: it has no config.json or no weights "
            "(.safetensors or .bin). Give the folder of a Hugging Face model."
        )
    whole = hashlib.sha256()
    for file in files:
        content = hashlib.sha256()
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                content.update(block)
        whole.update(f"{file.name}\0{content.hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


def _downloaded(name: str) -> Path:
    """The local snapshot of a model on the Hub, fetched where it is not here yet."""
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, allow_patterns=list(_PATTERNS)))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise EvaluationError(
            f"There is no folder {name!r}, and no model of that name could be fetched "
            f"({type(error).__name__}: {first}). Give a checkpoint's folder, or its name on the "
            "Hub (owner/name)."
        ) from error


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
