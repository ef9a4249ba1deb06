"""Writes a problem set in each trainer's format."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tandem_plugin._version import __version__
from tandem_plugin.errors import DataError, OutputError
from tandem_plugin.files import check_outputs
from tandem_plugin.grading.grader import unread_gold
from tandem_plugin.grading.rewards import text_of
from tandem_plugin.lab.data.duplicates import near_duplicates, spelling_of, words_of
from tandem_plugin.lab.data.folder import (
    MANIFEST,
    file_digest,
    prepared_manifest,
    preparing,
    read_manifest,
)
from tandem_plugin.lab.data.instructions import asks_for_no_box
from tandem_plugin.lab.data.pictures import data_url
from tandem_plugin.lab.data.problem import (
    Problem,
    ProblemSet,
    PromptTemplate,
    with_parts,
)

Trainer: TypeAlias = Literal["verl", "openrlhf", "trl", "skyrl"]
"""TRL and SkyRL read verl's files, but TRL those with images in a separate form."""
Form: TypeAlias = Literal["verl", "openrlhf", "trl"]
_MOST_GOLD = 200
"""Characters of a gold in the manifest."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The files that were written. The same set, settings and seed produce the same files."""

    files: Mapping[str, Path]
    """By split: ``train``, and ``heldout`` if requested."""
    rows: Mapping[str, int]
    checksums: Mapping[str, str]
    """SHA-256 of each split's problems and golds, whatever the file format."""
    contents: Mapping[str, Any]
    """The manifest: see :func:`prepare`."""
    replaced: Mapping[str, Any] | None
    """The manifest of an earlier preparation of other problems, which is gone."""
    manifest: Path


def prepare(
    problems: ProblemSet,
    trainer: Trainer,
    out: Path,
    heldout: int = 0,
    seed: int = 0,
    template: PromptTemplate | None = None,
    draws_rows: bool = False,
    protocol: Mapping[str, Any] | None = None,
) -> Prepared:
    """Write a problem set in a trainer's format, with a manifest.

    The folder has one preparation: see :func:`tandem_plugin.lab.data.folder.preparing`. The files
    that the problems were read from are never overwritten.

    verl, TRL, SkyRL: Parquet with chat messages, and a column of images if any problem has some.
    OpenRLHF: JSONL with chat messages in ``input``, for ``--data.apply_chat_template``. draws_rows:
    see :func:`split`. protocol: the manifest's record of the protocol.

    The manifest has the version of this package; ``source``: the name, the files' SHA-256 and the
    fields or function that they were read with; ``checksums`` of what was written; ``seed`` of the
    held-out problems; the prompt's ``template``, ``instruction`` and ``system`` turn; and what a
    reader should know, by row: ``unreadable_golds``, ``near_duplicates`` of held-out problems,
    ``bad_rows``; and in numbers ``duplicates`` (other spellings of an earlier problem, kept in the
    same split), ``contradictions`` (the same text with other golds), ``unread_fields`` and
    ``without_box`` (prompts that ask for the answer in a form other than a box).

    Raises :class:`DataError` if no problems would be left to train on, or for images if the trainer
    cannot train on them in tandem; :class:`OutputError` if a file cannot be written.
    """
    template = template or PromptTemplate()
    form = form_of(trainer, problems)
    parts, duplicates = split(problems.problems, heldout, seed, draws_rows)
    names = {name: f"{name}{_FORMS[form][0]}" for name in parts}
    inputs = problems.origin.files if problems.origin else ()
    check_outputs({"problems": inputs}, out / MANIFEST, *(out / name for name in names.values()))
    manifest: dict[str, Any] = {
        **_made_of(problems, parts, template),
        "trainer": form,
        "files": names,
        "seed": seed if heldout else None,
        **({} if protocol is None else {"protocol": dict(protocol)}),
        "duplicates": duplicates,
        **_noticed(problems, parts, template),
    }
    before = read_manifest(out)
    with preparing(out, problems.name, form) as folder:
        _check_left(out, parts)
        for name, part in parts.items():
            _FORMS[form][1](problems.name, name, part, folder / names[name], template)
        manifest["sha256"] = {file: file_digest(folder / file) for file in names.values()}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    is_same = before is None or before["checksums"] == manifest["checksums"]
    return Prepared(
        files={name: out / file for name, file in names.items()},
        rows=manifest["rows"],
        checksums=manifest["checksums"],
        contents=manifest,
        replaced=None if is_same else before,
        manifest=out / MANIFEST,
    )


def form_of(trainer: Trainer, problems: ProblemSet) -> Form:
    """The form in which a trainer reads problems; :class:`DataError` if it cannot read images."""
    if not any(problem.images for problem in problems.problems):
        return "openrlhf" if trainer == "openrlhf" else "verl"
    if trainer == "skyrl":
        raise DataError("images-unprepared", name=problems.name, trainer="SkyRL")
    return trainer


def _made_of(
    problems: ProblemSet, parts: Mapping[str, Sequence[Problem]], template: PromptTemplate
) -> dict[str, Any]:
    """What the files are made of: the source, the prompts, and their content."""
    return {
        "name": problems.name,
        "tandem_plugin": __version__,
        "source": problems.origin.record() if problems.origin else None,
        "rows": {name: len(part) for name, part in parts.items()},
        **({"images": images} if (images := _counted_images(problems)) else {}),
        "checksums": {name: checksum(part) for name, part in parts.items()},
        "template": template.template,
        "instruction": template.instruction,
        "system": template.system,
        "always_instructed": template.always,
    }


def _noticed(
    problems: ProblemSet, parts: Mapping[str, Sequence[Problem]], template: PromptTemplate
) -> dict[str, Any]:
    """What a reader of the files should know of the problems."""
    unreadable = [(problem.row, unread_gold(problem.golds)) for problem in problems.problems]
    nearly = near_duplicates(parts["train"], parts.get("heldout", ()))
    return {
        "contradictions": _contradictions(problems.problems),
        "unreadable_golds": [
            {"row": row, "gold": gold[:_MOST_GOLD]} for row, gold in unreadable if gold is not None
        ],
        "near_duplicates": [pair._asdict() for pair in nearly],
        "bad_rows": [{"row": bad.row, "reason": bad.reason} for bad in problems.bad_rows],
        "unread_fields": dict(problems.unread),
        "without_box": sum(
            asks_for_no_box(template.messages(problem)) for problem in problems.problems
        ),
    }


def written_template(file: Path) -> PromptTemplate | None:
    """The template of a file that :func:`prepare` wrote, whose prompts are therefore complete.

    None for any other file; raises :class:`DataError` if that is unknown: see
    :func:`prepared_manifest`.
    """
    manifest = prepared_manifest(file)
    if manifest is None:
        return None
    always = manifest.get("always_instructed") is True
    parts = (manifest["template"], manifest["instruction"], manifest.get("system"))
    return PromptTemplate(*parts, always)


def _check_left(out: Path, parts: Mapping[str, object]) -> None:
    """Raise for problems held out before: without holding out, they would be trained on as well."""
    for ending in (".parquet", ".jsonl"):
        heldout_file = out / f"heldout{ending}"
        if "heldout" not in parts and os.path.exists(heldout_file):
            raise OutputError("heldout-would-be-trained", left=heldout_file)


def split(
    problems: Sequence[Problem], heldout: int, seed: int, draws_rows: bool = False
) -> tuple[dict[str, list[Problem]], int]:
    """Problems by split, in their order, and how many repeat an earlier one.

    Which problems are held out depends only on the seed, their words and their pictures, not on
    their order.
    Spellings of one problem (:func:`~tandem_plugin.lab.data.duplicates.spelling_of`) are never on
    both sides, so slightly more may be held out. draws_rows: hold out the rows that pandas'
    ``DataFrame.sample`` draws with that seed instead, as the paper's release does; spellings of one
    problem may then be on both sides. Raises
    :class:`DataError` if ``heldout`` leaves nothing to train on.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(spelling_of(problem), []).append(problem)
    duplicates = len(problems) - len(groups)
    if heldout == 0:
        return {"train": list(problems)}, duplicates
    if not 0 < heldout < len(groups):
        raise DataError("heldout-too-many", heldout=heldout, problems=len(groups))
    if draws_rows:
        rows = np.random.RandomState(seed).choice(len(problems), heldout, replace=False).tolist()
        out = set(rows)
        train = [problem for row, problem in enumerate(problems) if row not in out]
        return {"train": train, "heldout": [problems[row] for row in rows]}, duplicates
    order = {
        spelling: min(_digest("\n".join([str(seed), *_drawn_by(problem)])) for problem in group)
        for spelling, group in groups.items()
    }
    drawn = set(sorted(order, key=order.__getitem__)[:heldout])
    held_out = {id(problem) for spelling in drawn for problem in groups[spelling]}
    return {
        "train": [problem for problem in problems if id(problem) not in held_out],
        "heldout": [problem for problem in problems if id(problem) in held_out],
    }, duplicates


def _drawn_by(problem: Problem) -> list[str]:
    """What decides, with the seed, whether a problem is held out."""
    return [" ".join(words_of(problem)), *_digests(problem)]


def _contradictions(problems: Sequence[Problem]) -> int:
    """How many problems have other golds than the first one of the same text and pictures."""
    first: dict[tuple[str, ...], set[str]] = {}
    return sum(
        first.setdefault((problem.text, *_digests(problem)), set(problem.golds))
        != set(problem.golds)
        for problem in problems
    )


def _counted_images(problems: ProblemSet) -> int:
    return sum(len(problem.images) for problem in problems.problems)


def _digests(problem: Problem) -> list[str]:
    return [picture.digest for picture in problem.images]


def checksum(problems: Sequence[Problem]) -> str:
    """SHA-256 of problems, golds, and the pixels of images."""
    rows = [
        [
            [dict(turn) for turn in problem.messages],
            list(problem.golds),
            *([_digests(problem)] if problem.images else []),
        ]
        for problem in problems
    ]
    return _digest(json.dumps(rows, sort_keys=True, ensure_ascii=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _labels(problems: Sequence[Problem]) -> list[str | None] | list[list[str]]:
    """The golds of each problem: text, None, or lists where any problem has several."""
    if any(len(problem.golds) > 1 for problem in problems):
        return [list(problem.golds) for problem in problems]
    return [problem.golds[0] if problem.golds else None for problem in problems]


def _write_verl(
    source: str, name: str, problems: Sequence[Problem], path: Path, template: PromptTemplate
) -> None:
    _write_table(_rows(source, name, problems, template), name, problems, path)


def _write_trl(
    source: str, name: str, problems: Sequence[Problem], path: Path, template: PromptTemplate
) -> None:
    """verl's rows, but with prompts in parts: TRL puts its images before a prompt of text."""
    rows = _rows(source, name, problems, template)
    for row, problem in zip(rows, problems, strict=True):
        row["prompt"] = with_parts(row["prompt"], bool(problem.images))
    _write_table(rows, name, problems, path)


def _rows(
    source: str, name: str, problems: Sequence[Problem], template: PromptTemplate
) -> list[dict[str, Any]]:
    """``reward_model.ground_truth`` comes from :func:`_labels`.

    ``extra_info.problem`` is the prompt as text, for rewards that look for copied answers.
    """
    return [
        {
            "data_source": source,
            "prompt": (messages := template.messages(problem)),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": label},
            "extra_info": {
                "index": index,
                "split": name,
                "row": problem.row,
                "problem": text_of(messages),
            },
        }
        for index, (problem, label) in enumerate(zip(problems, _labels(problems), strict=True))
    ]


_IMAGES = {"info": {"features": {"images": {"_type": "Sequence", "feature": {"_type": "Image"}}}}}
"""By which Hugging Face's ``datasets`` decodes the column: without it, rows have bytes."""


def _write_table(
    rows: Sequence[dict[str, Any]], name: str, problems: Sequence[Problem], path: Path
) -> None:
    """Write rows, and the column ``images`` if the set has any."""
    try:
        import pyarrow as arrow
        from pyarrow.parquet import write_table
    except ModuleNotFoundError:
        raise DataError("verl-parquet-needs-pyarrow") from None
    try:
        table = arrow.Table.from_pylist(rows)
        if any(problem.images for problem in problems):
            files = [[{"bytes": i.content, "path": None} for i in p.images] for p in problems]
            kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
            table = table.append_column("images", arrow.array(files, arrow.list_(kind)))
            table = table.replace_schema_metadata({"huggingface": json.dumps(_IMAGES)})
    except (arrow.ArrowException, UnicodeEncodeError) as error:
        raise DataError("parquet-unwritable", name=name, error=error) from error
    write_table(table, path)


def _write_openrlhf(
    source: str, name: str, problems: Sequence[Problem], path: Path, template: PromptTemplate
) -> None:
    """``label`` comes from :func:`_labels`; images are ``data:`` URLs, and prompts then in parts.

    OpenRLHF would strip the text around an image's place from white space.
    """
    seen = any(problem.images for problem in problems)
    with path.open("w", encoding="utf-8") as lines:
        for problem, label in zip(problems, _labels(problems), strict=True):
            messages: Any = template.messages(problem)
            if seen:
                messages = with_parts(messages, bool(problem.images))
            row = {"input": messages, "label": label, "datasource": source}
            if seen:
                row["images"] = [data_url(picture) for picture in problem.images]
            lines.write(json.dumps(row) + "\n")


_Write: TypeAlias = Callable[[str, str, Sequence[Problem], Path, PromptTemplate], None]
_FORMS: Mapping[Form, tuple[str, _Write]] = {
    "verl": (".parquet", _write_verl),
    "trl": (".parquet", _write_trl),
    "openrlhf": (".jsonl", _write_openrlhf),
}
"""The ending of the files, and the function that writes one."""
