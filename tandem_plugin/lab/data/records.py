"""Reads rows from JSONL, JSON and Parquet files, and from the Hugging Face Hub."""

from __future__ import annotations

import os
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.files import open_file, parse_json, read_file, system_reason
from tandem_plugin.files.checkpoints import hub_access, is_hub_name


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set on the Hugging Face Hub; as text ``owner/name[:config][#split]``."""

    name: str
    """owner/name"""
    config: str | None = None
    """None if the set has one configuration, or a default one."""
    split: str | None = None
    """None if it has one split."""
    revision: str | None = None
    """A commit; None is the newest."""

    @classmethod
    def parse(cls, text: str) -> HubSource:
        """From its text, with or without ``hf://`` before it."""
        where, _, split = text.removeprefix("hf://").partition("#")
        name, _, config = where.partition(":")
        return cls(name, config or None, split or None)

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"#{self.split}" if self.split else ""
        return f"{self.name}{config}{split}"


def read_records(path: Path) -> Iterator[tuple[int, Any]]:
    """(row, record) of a ``.jsonl``, ``.json`` or ``.parquet`` file.

    Rows count from 1; in JSONL they are lines, and blank ones are skipped. A byte-order mark before
    a text is no part of it. An exception in place of a record means a line that is not JSON.
    Raises :class:`DataError` for a file that cannot be read.
    """
    if os.path.isdir(path):
        raise DataError("problem-file-is-folder", path=path)
    if not os.path.isfile(path):
        raise DataError("problem-file-missing", path=path)
    try:
        open_file(path).close()
    except OSError as error:
        raise DataError("file-unreadable", path=path, reason=system_reason(error)) from error
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return _json_lines(path)
        case ".json":
            return enumerate(_json(path), 1)
        case ".parquet":
            return enumerate(_parquet(path), 1)
        case suffix:
            raise DataError("problem-file-extension", path=path, suffix=suffix)


def is_hub_source(source: str) -> bool:
    """Whether a source has the form owner/name[:config][#split] and is not a local path."""
    name = HubSource.parse(source).name
    return is_hub_name(name) and not Path(name).suffix


def read_hub(source: HubSource) -> Iterator[tuple[int, Any]]:
    """The rows of a data set on the Hugging Face Hub.

    Raises :class:`DataError` if the library ``datasets`` is missing, the Hub cannot be reached, or
    the configuration or the split must be specified.
    """
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise DataError("hub-needs-datasets") from None
    with hub_access(
        lambda reason: DataError("hub-download-failed", source=str(source), reason=reason)
    ):
        rows = load_dataset(
            source.name, name=source.config, split=source.split, revision=source.revision
        )
    if hasattr(rows, "keys"):
        splits = list(rows.keys())
        if len(splits) != 1:
            raise DataError(
                "split-unknown", name=str(source), splits=", ".join(splits), split=splits[0]
            )
        rows = rows[splits[0]]
    return enumerate(rows, 1)


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(BOM_UTF8)
            if not line.strip():
                continue
            try:
                yield number, parse_json(line)
            except ValueError as error:
                yield number, error


def _json(path: Path) -> list[Any]:
    try:
        records = parse_json(read_file(path).removeprefix(BOM_UTF8))
    except UnicodeDecodeError as error:
        raise not_utf8(repr(str(path)), error) from error
    except ValueError as error:
        raise DataError("problem-file-not-json", path=path, error=error) from error
    if not isinstance(records, list):
        raise DataError("problem-file-not-list", path=path, kind=type(records).__name__)
    return records


def not_utf8(where: str, error: UnicodeDecodeError) -> DataError:
    """The error of a text in a different encoding, which is guessed from how its bytes begin."""
    is_utf16 = error.object.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    encoding = "UTF-16" if is_utf16 else "WINDOWS-1252"
    byte = error.object[error.start]
    return DataError("problem-text-not-utf8", where=where, byte=byte, encoding=encoding)


def _parquet(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError:
        raise DataError("parquet-needs-pyarrow") from None
    try:
        file = ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise DataError("problem-file-not-parquet", path=path, error=error) from error
    return (row for batch in file.iter_batches() for row in batch.to_pylist())
