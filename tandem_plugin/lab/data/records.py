"""Reads rows from JSONL, JSON, Parquet, and Hugging Face data sets."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.files import (
    is_hub_name,
    open_file,
    read_file,
    system_reason,
)
from tandem_plugin.files.strict_json import parse_json

__all__ = ["HubSource", "is_hub_source", "read_hub", "read_records", "record_files"]

_SAVED_AS = ("dataset_info.json", "state.json", "dataset_dict.json")
"""What the folder of a saved data set holds beside its ``*.arrow`` files."""

_LISTS = ("data", "rows", "problems", "examples", "train", "test")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set on the Hugging Face Hub; as text ``owner/name[:config][#split]``."""

    name: str
    """owner/name"""
    config: str | None = None
    """None where the set has one configuration, or a default one."""
    split: str | None = None
    """None where it has one split."""
    revision: str | None = None
    """A commit; None takes the newest."""

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
    """(row, record) of a ``.jsonl``, ``.json`` or ``.parquet`` file, or of a saved data set.

    Rows count from 1; in JSONL they are lines, and blank ones are skipped. A record that is an
    exception stands for a line that is not JSON. Raises :class:`DataError` for a file that cannot
    be read.
    """
    if os.path.isdir(path):
        return _numbered(_saved(path))
    if not os.path.isfile(path):
        raise DataError("TP715", path=path)
    try:
        open_file(path).close()
    except OSError as error:
        raise DataError("TP754", path=path, reason=system_reason(error)) from error
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return _json_lines(path)
        case ".json":
            return _numbered(_json(path))
        case ".parquet":
            return _numbered(_parquet(path))
        case suffix:
            raise DataError("TP716", path=path, suffix=suffix)


def record_files(source: str) -> list[Path]:
    """The files that the records of a source are read from; none for a name on the Hub."""
    place = Path(source)
    if not os.path.isdir(place):
        return [place]
    return [*place.rglob("*.arrow"), *(f for n in _SAVED_AS for f in place.rglob(n))]


def is_hub_source(source: str) -> bool:
    """Whether a source has the form owner/name[:config][#split] and is not a local path."""
    name = HubSource.parse(source).name
    return is_hub_name(name) and not Path(name).suffix


def read_hub(source: HubSource) -> Iterator[tuple[int, Any]]:
    """The rows of a data set on the Hugging Face Hub.

    Raises :class:`DataError` if the library ``datasets`` is missing, the Hub cannot be reached, or
    the configuration or the split must be specified.
    """
    datasets = _datasets()
    try:
        found = datasets.load_dataset(
            source.name, name=source.config, split=source.split, revision=source.revision
        )
    except Exception as error:
        # The whole message: its later lines name the configurations or splits that there are.
        said = " ".join(str(error).split())[:300]
        raise DataError(
            "TP717", source=source, error_type=type(error).__name__, said=said
        ) from error
    return _numbered(_only_split(found, str(source)))


def _only_split(found: Any, name: str) -> Any:
    if not hasattr(found, "keys"):
        return found
    splits = list(found.keys())
    if len(splits) != 1:
        raise DataError("TP718", name=name, splits=", ".join(splits), split=splits[0])
    return found[splits[0]]


def _datasets() -> Any:
    if importlib.util.find_spec("datasets") is None:
        raise DataError("TP719")
    import datasets

    return datasets


def _numbered(records: Any) -> Iterator[tuple[int, Any]]:
    yield from enumerate(records, 1)


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield number, parse_json(line)
            except ValueError as error:
                yield number, error


def _json(path: Path) -> list[Any]:
    try:
        records = parse_json(read_file(path))
    except ValueError as error:
        raise DataError("TP720", path=path, error=error) from error
    if isinstance(records, dict):
        lists = [records[name] for name in _LISTS if isinstance(records.get(name), list)]
        if len(lists) == 1:
            return list(lists[0])
    if not isinstance(records, list):
        raise DataError("TP721", path=path, kind=type(records).__name__)
    return records


def _parquet(path: Path) -> Iterator[Any]:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("TP722")
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise DataError("TP723", path=path, error=error) from error
    return (row for batch in file.iter_batches() for row in batch.to_pylist())


def _saved(path: Path) -> Any:
    try:
        return _only_split(_datasets().load_from_disk(str(path)), str(path))
    except (FileNotFoundError, ValueError) as error:
        raise DataError("TP724", path=path, error=error) from error
