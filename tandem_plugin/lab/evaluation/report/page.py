"""The report's page: one HTML file that asks nothing of any network and runs no code at all."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import NamedTuple

from tandem_plugin._version import __version__
from tandem_plugin.lab.evaluation.rendering import Cell, PaperTable
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.verdict import LEVEL, Verdict

__all__ = ["Picture", "SampleResponse", "make_page", "safe"]

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029"
                     "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")  # fmt: skip

_NAME = " class=name"


class Picture(NamedTuple):
    """A figure as the page shows it."""

    name: str
    """Of its files."""
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True, slots=True)
class SampleResponse:
    """The first response to one problem: what it was asked, who wrote it, what became of it."""

    senior: str
    label: str
    benchmark: str
    problem: int
    prompt: str
    outcome: str
    parts: tuple[tuple[str, str], ...]
    """(author, text): ``senior``, ``junior``, ``shared`` for a character of both, or ``""`` where
    the tokenizer is not at hand and nobody can say."""


def safe(text: str) -> str:
    """Text that HTML shows as it is: markup escaped, control characters and those that turn the
    direction of text replaced by U+FFFD."""
    return html.escape(_UNSAFE.sub("\ufffd", text))


def make_page(
    title: str,
    verdict: Sequence[Verdict],
    runs: Mapping[str, Mapping[str, Summary]],
    tables: Sequence[PaperTable],
    pictures: Sequence[Picture],
    samples: Sequence[SampleResponse],
    notes: Sequence[str],
) -> str:
    """The whole page. Its Content Security Policy allows its own style and pictures, and no more.

    verdict: what the results show, first of all. runs: by label, then by senior, for what the
    evaluation was made with. notes: what is missing.
    """
    style = files("tandem_plugin.lab.evaluation.report").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    body = [
        f"<header><h1>{safe(title)}</h1>",
        *_verdict(verdict),
        f"<details><summary>Models, sampling and versions</summary>{_list(_how_it_was_made(runs))}",
        "</details>",
        *(f"<p class=note>{safe(note)}</p>" for note in notes),
        "</header><main>",
        *(_figure(picture) for picture in pictures),
        *(_table(table) for table in tables),
        *_samples(samples),
        f"</main><footer>Made by tandem-plugin {safe(__version__)}.</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _how_it_was_made(runs: Mapping[str, Mapping[str, Summary]]) -> Iterator[tuple[str, str]]:
    """Models with their places and fingerprints, sampling of each run, and versions."""
    every = [run for by_senior in runs.values() for run in by_senior.values()]
    models = [
        model for run in every for model in (run.content["senior"], run.content.get("junior"))
    ]
    for name in dict.fromkeys(model["name"] for model in models if model):
        known = [model for model in models if model and model["name"] == name]
        for field in ("path", "fingerprint"):
            yield name, next((one[field] for one in known if one.get(field)), f"no {field} known")
    for label, by_senior in runs.items():
        sampling = next(iter(by_senior.values())).settings.get("sampling") or {}
        if sampling:
            yield label, ", ".join(f"{key} {value}" for key, value in sampling.items())
    versions = every[0].content.get("versions") or {}
    yield "versions", ", ".join(f"{key} {value}" for key, value in versions.items())


def _list(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{safe(k)}</dt><dd>{safe(v)}</dd>" for k, v in facts) + "</dl>"


def _verdict(verdict: Sequence[Verdict]) -> Iterable[str]:
    if not verdict:
        return
    yield "<section class=verdict><h2>What the results show</h2><ul>"
    for one in verdict:
        kind = one.outcome.replace(" ", "-")
        yield (
            f"<li class={kind}><b>{safe(one.outcome)}</b> {safe(one.sentence)} "
            f"<small>{safe(one.evidence)}</small></li>"
        )
    tests = sum(one.outcome != "no test" for one in verdict)
    said = "1 test" if tests == 1 else f"{tests} tests"
    yield (
        f"</ul><p class=small>{said}, each at the level of {LEVEL:g}, not corrected for their "
        "number: where nothing differs, about one in twenty says better, and one worse.</p>"
        "</section>"
    )


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    title, caption = safe(picture.title), safe(picture.caption)
    return (
        f"<figure><h2>{title}</h2><div class=wide>"
        f'<img alt="{title}. {caption}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _table(table: PaperTable) -> str:
    head = "".join(
        f"<th{_NAME if j < table.text_columns else ''}>{safe(name)}</th>"
        for j, name in enumerate(table.columns)
    )
    rows = []
    last = [""] * len(table.columns)
    for i, row in enumerate(table.rows):
        # Where rows stand one below the other, on a phone, each says what it is of.
        last = [cell.text or before for cell, before in zip(row, last, strict=True)]
        cells = "".join(
            _cell(cell, name, before if j < table.text_columns else None)
            for j, (cell, name, before) in enumerate(zip(row, table.columns, last, strict=True))
        )
        rows.append(f"<tr{' class=rule' if i in table.rules else ''}>{cells}</tr>")
    note = f"<p class=note>{safe(table.note)}</p>" if table.note else ""
    return (
        f"<section><h2>{safe(table.title)}</h2><div class=wide><table><thead><tr>{head}</tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>{note}</section>"
    )


def _cell(cell: Cell, column: str, name: str | None) -> str:
    """name: what stands here or above, in a column of names; None in a column of numbers."""
    text = safe(cell.text)
    if cell.bold:
        text = f"<strong>{text}</strong>"
    if cell.error:
        text += f"<small> ± {safe(cell.error)}</small>"
    marks = f' class=name data-above="{safe(name)}"' if name is not None else ""
    return f'<td{marks} data-column="{safe(column)}">{text}{safe(cell.stars)}</td>'


def _samples(samples: Sequence[SampleResponse]) -> Iterable[str]:
    if not samples:
        return
    yield (
        "<section><h2>Responses</h2><p class=legend><span class=senior>senior</span> "
        "<span class=junior>junior</span> <span class=shared>one character of both</span></p>"
    )
    for (senior, label), found in groupby(samples, key=lambda one: (one.senior, one.label)):
        yield f"<h3>{safe(senior)}: {safe(label)}</h3>"
        yield from map(_sample, found)
    yield "</section>"


def _sample(sample: SampleResponse) -> str:
    parts = "".join(
        f"<span class={author}>{safe(text)}</span>" if author else safe(text)
        for author, text in sample.parts
    )
    return (
        f"<details><summary>{safe(sample.benchmark)}, problem {sample.problem}: "
        f"{safe(sample.outcome)}</summary><pre class=prompt>"
        f"{safe(sample.prompt)}</pre><pre>{parts}</pre></details>"
    )
