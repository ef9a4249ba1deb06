"""The problems of a run, prepared once in a folder that is named by what they were prepared from.

A different source, content or number of held-out problems leads to a different folder, so a run
never trains on problems that its recipe does not name. Trainers of one format share a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.errors import ConfigError, DataError
from tandem_plugin.files import read_json, write_file
from tandem_plugin.lab.data import Layout, PromptTemplate, layout_of, prepare, read_problems
from tandem_plugin.lab.data.folder import file_digest, read_manifest
from tandem_plugin.lab.data.sources import check_source
from tandem_plugin.lab.recipes.run import MATH, file_of, place, trainer_of
from tandem_plugin.lab.recipes.settings import Recipe

ORIGIN = "origin.json"
"""What the files of a folder were prepared from; written last."""

_SHOWN = 12
_NOTICED = ("unreadable_golds", "near_duplicates", "contradictions", "without_box")
"""Names of a manifest's counts and lists."""


@dataclass(frozen=True, slots=True)
class RunData:
    """The files that a run trains on and validates with."""

    name: str
    train: Path
    validation: Path | None
    source: str = ""
    """A file, or the name of a set; empty for files of the user's own."""
    layout: Layout = field(default_factory=Layout)
    """Where its rows have their parts."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What decides what is in the prepared files, but for a set that changes on the Hub."""

    @property
    def folder(self) -> Path:
        return self.train.parent

    @property
    def is_prepared(self) -> bool:
        """Whether the files are there, and prepared from this origin."""
        if not self.origin:
            return True
        try:
            noted = read_json(self.folder / ORIGIN)
        except (OSError, ValueError):
            return False
        files = [file for file in (self.train, self.validation) if file is not None]
        return bool(noted == self.origin) and all(file.exists() for file in files)

    def prepare(self) -> None:
        """Write the files, if they are not there; raises :class:`DataError` as :func:`prepare`.

        Also raises it where a prepared file was changed afterwards, and :class:`ConfigError` for
        images that are off in the recipe.
        """
        if not self.is_prepared:
            _write(self)
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        manifest = (read_manifest(self.folder) if self.origin else None) or {}
        for name, digest in (manifest.get("sha256") or {}).items():
            file = self.folder / name
            if not file.is_file() or file_digest(file) != digest:
                raise DataError("recipe-data-changed", file=file, folder=self.folder)

    def described(self) -> str:
        """Name, rows, checksum and what is held out, for people."""
        manifest = read_manifest(self.folder) if self.origin and self.is_prepared else None
        if manifest is None:
            if self.origin:
                return f"{self.name}, to be prepared in {self.folder}"
            return f"{self.train} ({file_digest(self.train)[:_SHOWN]})"
        rows, sums = manifest["rows"], manifest["checksums"]
        text = f"{self.name}: {rows['train']:,} rows, checksum {sums['train'][:_SHOWN]}"
        heldout = f", {rows['heldout']:,} held out" if "heldout" in rows else ""
        return f"{text}{heldout}; {self.folder}"

    def noticed(self) -> str:
        """What the manifest has that somebody who trains on the files should know; often empty."""
        manifest = (read_manifest(self.folder) if self.origin else None) or {}
        fields = ", ".join(manifest.get("unread_fields", ()))
        noticed = [(name, manifest.get(name, 0)) for name in _NOTICED]
        counts = [(name, len(rows) if isinstance(rows, list) else rows) for name, rows in noticed]
        lines = [f"{name.replace('_', ' ')} {count:,}" for name, count in counts if count]
        return "; ".join([*([f"not in the prompts: {fields}"] if fields else []), *lines])

    def marks(self) -> dict[str, str]:
        """What identifies the problems, for a run's note: names and digests."""
        files = {"train": self.train, "validation": self.validation}
        return {
            name: f"{self.name} {file_digest(file)[:_SHOWN]}"
            for name, file in files.items()
            if file is not None
        }


def data_of(recipe: Recipe, base: Path) -> RunData:
    """The files of a recipe's run, which may not be prepared yet; base: its folder.

    Raises :class:`DataError` for a source or a file that is not there.
    """
    if recipe.train is not None:
        train = file_of(recipe.train, "train", base)
        if recipe.validation is None and recipe.trainer != "trl":
            raise DataError("recipe-train-without-validation", train=recipe.train)
        name = recipe.validation
        validation = None if name is None else file_of(name, "validation", base)
        return RunData(train.stem, train, validation)
    source = source_of(str(recipe.problems), base)
    ending = trainer_of(recipe.trainer).FORMAT
    origin = _origin(recipe, base, source, ending)
    key = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:_SHOWN]
    folder = base / "data" / f"{_stem(source)}-{key}"
    validation = folder / f"heldout.{ending}" if recipe.heldout else None
    layout = layout_of(
        [f"{part}={name}" for part, name in recipe.field.items()], _map(recipe, base)
    )
    train = folder / f"train.{ending}"
    return RunData(_stem(source), train, validation, source, layout, origin)


def source_of(problems: str, base: Path) -> str:
    """A file, absolute, or the name of a set; :class:`DataError` for what is neither."""
    file = place(problems, base)
    if file.is_file():
        return str(file)
    if problems.startswith(("/", ".", "~")) or Path(problems).suffix in (
        ".json",
        ".jsonl",
        ".parquet",
    ):
        raise DataError("recipe-file-missing", setting="problems", file=file)
    check_source(problems)
    return problems


def _map(recipe: Recipe, base: Path) -> str | None:
    """The function of the user's that makes rows, with its file absolute."""
    if recipe.map is None:
        return None
    file, _, function = recipe.map.rpartition(":")
    return f"{file_of(file, 'map', base)}:{function}"


def _origin(recipe: Recipe, base: Path, source: str, ending: str) -> dict[str, Any]:
    made_by = _map(recipe, base)
    is_file = os.path.isabs(source)
    template = _template(recipe)
    return {
        "source": Path(source).name if is_file else source,
        "sha256": file_digest(Path(source)) if is_file else None,
        "field": dict(recipe.field),
        "map": made_by and [recipe.map, file_digest(Path(made_by.rpartition(":")[0]))],
        "heldout": recipe.heldout,
        "golds": "required" if recipe.reward == (MATH,) else "optional",
        "template": template.template,
        "instruction": template.instruction,
        "format": ending,
        # Each trainer has a form of its own for these.
        **({"images": recipe.trainer} if recipe.tandem.get("images") else {}),
        "tandem-plugin": __version__,
    }


def _template(recipe: Recipe) -> PromptTemplate:
    """The instruction to answer in a box is for the reward that looks for one."""
    return PromptTemplate() if recipe.reward == (MATH,) else PromptTemplate("{problem}", "")


def _stem(source: str) -> str:
    """A name for a folder."""
    name = Path(source).stem if os.path.isabs(source) else source
    return re.sub(r"[^\w.-]", "-", name)[:60]


def _write(data: RunData) -> None:
    """The call of the data's own package; everything else here is names and digests."""
    origin = data.origin
    problems = read_problems(data.source, golds=origin["golds"], layout=data.layout)
    trainer = origin.get("images")
    if trainer is None and any(problem.images for problem in problems.problems):
        raise ConfigError("prompt-images-off")
    prepare(
        problems,
        trainer or ("openrlhf" if origin["format"] == "jsonl" else "verl"),
        data.folder,
        heldout=origin["heldout"],
        template=PromptTemplate(origin["template"], origin["instruction"]),
    )
    write_file(data.folder / ORIGIN, json.dumps(dict(origin), indent=2) + "\n")
