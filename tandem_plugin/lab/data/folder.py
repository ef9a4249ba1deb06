"""The folder of one prepared problem set: its files are replaced together, and no others."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tandem_plugin.errors import DataError, OutputError
from tandem_plugin.files import lock_file, read_file, read_json, system_reason

MANIFEST = "manifest.json"
_LOCK = ".prepare.lock"
_UNFINISHED = ".prepare"
"""Has files that are being written."""
_FINISHED = ".prepared"
"""Has files that are complete and move to the folder, the manifest first."""
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("name", "trainer", "template", "instruction"), str),
    **dict.fromkeys(("files", "rows", "checksums", "sha256"), dict),
}
"""What every manifest has."""
_NAMES = ("train.parquet", "heldout.parquet", "train.jsonl", "heldout.jsonl")


@contextmanager
def preparing(folder: Path, name: str, trainer: str) -> Iterator[Path]:
    """An empty folder to write to, whose files then replace those of ``folder``.

    name, trainer: what is being prepared. Until everything is written, ``folder`` stays as it is.
    The old files are removed before the first new one takes its place, so no interruption leaves
    files of two preparations; the next preparation completes an interrupted one. Raises
    :class:`OutputError` if a different process prepares in the folder, if it has a different set,
    files of a different trainer or foreign ones, or if it cannot be written.
    """
    is_new = not os.path.exists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _complete(folder)
            _check_prepared(folder, name, trainer)
            with _emptied(folder / _UNFINISHED) as unfinished:
                yield unfinished
                _check_overwritten(folder, unfinished)
                os.rename(unfinished, folder / _FINISHED)
            try:
                _complete(folder)
            except KeyboardInterrupt:
                _complete(folder)
                raise
    except OSError as error:
        raise OutputError("file-unwritable", path=folder, reason=system_reason(error)) from error
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from preparing in a folder; the lock's file goes with the lock."""
    path = folder / _LOCK
    with path.open("ab") as lock:
        try:
            is_current = lock_file(lock, folder) and os.path.samestat(
                os.fstat(lock.fileno()), path.stat()
            )
        except OSError:
            is_current = False
        if not is_current:  # the other process holds it, or has just removed it
            raise OutputError("file-locked", path=folder)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # without locks, another process may have removed it


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _complete(folder: Path) -> None:
    """Move finished files to their places, also those of an interrupted process."""
    finished = folder / _FINISHED
    if not finished.exists():
        return
    if (finished / MANIFEST).exists():
        for name in _listed(folder):
            (folder / name).unlink(missing_ok=True)
        os.replace(finished / MANIFEST, folder / MANIFEST)
    for file in sorted(finished.iterdir()):
        os.replace(file, folder / file.name)
    finished.rmdir()


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest that ``tandem data prepare`` wrote to a folder, or None."""
    try:
        manifest = read_json(folder / MANIFEST)
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict):
        return None
    has_kinds = all(isinstance(manifest.get(name), kind) for name, kind in _KINDS.items())
    return manifest if has_kinds else None


def _listed(folder: Path) -> list[str]:
    """The names of the files that the manifest lists, without those that lead elsewhere."""
    manifest = read_manifest(folder)
    return [] if manifest is None else [n for n in manifest["files"].values() if n in _NAMES]


def _check_prepared(folder: Path, name: str, trainer: str) -> None:
    """Raise unless the folder's manifest is of the same set and trainer, or there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        if os.path.lexists(folder / MANIFEST):
            raise OutputError("data-folder-foreign-file", folder=folder, file=MANIFEST)
        return
    if (manifest["name"], manifest["trainer"]) != (name, trainer):
        raise OutputError(
            "data-folder-other-set",
            folder=folder,
            name=manifest["name"],
            trainer=manifest["trainer"],
        )
    for file in _listed(folder):
        expected = manifest["sha256"].get(file)
        if os.path.exists(folder / file) and file_digest(folder / file) != expected:
            raise OutputError("data-folder-foreign-file", folder=folder, file=file)


def _check_overwritten(folder: Path, new: Path) -> None:
    """Raise if a new file would replace one that the folder's manifest does not list."""
    for file in sorted(new.iterdir()):
        if file.name not in (MANIFEST, *_listed(folder)) and os.path.lexists(folder / file.name):
            raise OutputError("data-folder-foreign-file", folder=folder, file=file.name)


def file_digest(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(read_file(file)).hexdigest()


def prepared_manifest(file: Path) -> Mapping[str, Any] | None:
    """The manifest of a file that ``tandem data prepare`` wrote; None for any other file.

    Raises :class:`DataError` for a file of an earlier preparation than its folder's manifest, whose
    prompts are therefore unknown, and for one of an interrupted preparation.
    """
    if file.name not in _NAMES:
        return None
    if (file.parent / _FINISHED).exists():
        raise DataError("data-preparation-interrupted", file=file)
    manifest = read_manifest(file.parent)
    if manifest is not None and file.name not in manifest["files"].values():
        raise DataError(
            "data-file-not-in-manifest",
            file=file,
            name=manifest["name"],
            trainer=manifest["trainer"],
        )
    return manifest
