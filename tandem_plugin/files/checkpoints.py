"""A checkpoint's folder, and a fingerprint of its contents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tandem_plugin.errors import ConfigError

__all__ = ["checkpoint_folder", "fingerprint_checkpoint", "model_files"]

_PATTERNS = ("*.safetensors", "*.bin", "*.json", "*.model", "*.tiktoken", "*.jinja", "merges.txt")
_WEIGHTS = (".safetensors", ".bin")
_BLOCK = 2**22
_AT_ONCE = 4
"""Files hashed concurrently: hashing is slower than a disk, and releases Python's lock."""


def checkpoint_folder(
    model: str, revision: str | None = None, download_dir: str | None = None
) -> Path:
    """The folder of a model: itself, or the local snapshot of a model on the Hugging Face Hub.

    It is downloaded if it is not cached. Raises :class:`ConfigError` if there is none.
    """
    if os.path.isdir(model):
        return Path(model)
    try:
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            model, revision=revision, cache_dir=download_dir, allow_patterns=list(_PATTERNS)
        )
        return Path(found)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise ConfigError(
            "TP760", model=model, error_type=type(error).__name__, first=first
        ) from error


def model_files(model: str) -> list[Path]:
    """The files that a checkpoint or a tokenizer is read from; none for a name on the Hub."""
    place = Path(model)
    return sorted(_files_of(place)) if os.path.isdir(place) else [place]


def fingerprint_checkpoint(place: Path) -> str:
    """16 hexadecimal digits of SHA-256 over the contents of a checkpoint's files.

    Covers weights, configuration and tokenizer, by name and content. place: its folder, or its
    single file. Raises OSError if a file cannot be read.
    """
    files = model_files(str(place))
    whole = hashlib.sha256()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for file, digest in zip(files, pool.map(_digest, files), strict=True):
            whole.update(f"{file.name}\0{digest}\n".encode())
    return whole.hexdigest()[:16]


def _files_of(folder: Path) -> Iterable[Path]:
    found = {file for pattern in _PATTERNS for file in folder.glob(pattern)}
    if not any(file.suffix in _WEIGHTS for file in found):
        found.update(folder.glob("*.pt"))  # read by vLLM if there is nothing else
    return found


def _digest(file: Path) -> str:
    content = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            content.update(block)
    return content.hexdigest()
