"""The report's page: one HTML file that asks nothing of any network and runs no code at all."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import groupby

from tandem_plugin._version import __version__
from tandem_plugin.evaluation.paper_table import Cell, PaperTable
from tandem_plugin.evaluation.report.samples import SampleResponse

__all__ = ["Picture", "make_page", "safe"]

Picture = tuple[str, str, str, bytes]
"""(name of its files, title, caption, PNG) of a figure."""

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029"
                     "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")  # fmt: skip


_NAME = " class=name"


def safe(text: str) -> str:
    """Text that HTML shows as it is: markup escaped, control characters and those that turn the
    direction of text replaced by U+FFFD."""
    return html.escape(_UNSAFE.sub("\ufffd", text))


def make_page(
    title: str,
    facts: Sequence[tuple[str, str]],
    tables: Sequence[PaperTable],
    pictures: Sequence[Picture],
    samples: Sequence[SampleResponse],
    notes: Sequence[str],
) -> str:
    """The whole page. Its Content Security Policy allows its own style and pictures, and no more.

    facts: what the evaluation was made with, for the head of the page. notes: what is missing.
    """
    style = files("tandem_plugin.evaluation.report").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    body = [
        f"<header><h1>{safe(title)}</h1>",
        "<dl>" + "".join(f"<dt>{safe(k)}</dt><dd>{safe(v)}</dd>" for k, v in facts) + "</dl>",
        *(f"<p class=note>{safe(note)}</p>" for note in notes),
        "</header><main>",
        *(_figure(picture) for picture in pictures),
        *(_table(table) for table in tables),
        *_samples(samples),
        f"</main><footer>Made by tandem-plugin {safe(__version__)}. Each figure lies beside this "
        "page as PNG, its numbers as CSV.</footer>",
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


def _figure(picture: Picture) -> str:
    name, title, caption, png = picture
    data = base64.b64encode(png).decode()
    return (
        f"<figure><h2>{safe(title)}</h2><div class=wide>"
        f'<img alt="{safe(title)}. {safe(caption)}" src="data:image/png;base64,{data}">'
        f"</div><figcaption>{safe(caption)} Files: {safe(name)}.png, {safe(name)}.csv</figcaption>"
        "</figure>"
    )


def _table(table: PaperTable) -> str:
    head = "".join(
        f"<th{_NAME if j < table.text_columns else ''}>{safe(name)}</th>"
        for j, name in enumerate(table.columns)
    )
    rows = []
    for i, row in enumerate(table.rows):
        cells = "".join(_cell(cell, j < table.text_columns) for j, cell in enumerate(row))
        rows.append(f"<tr{' class=rule' if i in table.rules else ''}>{cells}</tr>")
    note = f"<p class=note>{safe(table.note)}</p>" if table.note else ""
    return (
        f"<section><h2>{safe(table.title)}</h2><div class=wide><table><thead><tr>{head}</tr>"
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>{note}</section>"
    )


def _cell(cell: Cell, is_name: bool) -> str:
    text = safe(cell.text)
    if cell.bold:
        text = f"<strong>{text}</strong>"
    if cell.error:
        text += f"<small> ± {safe(cell.error)}</small>"
    return f"<td{_NAME if is_name else ''}>{text}{safe(cell.stars)}</td>"


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
        f"<details><summary>{safe(sample.benchmark)}, problem {sample.problem}, sample "
        f"{sample.sample}: {safe(sample.outcome)}</summary><pre class=prompt>"
        f"{safe(sample.prompt)}</pre><pre>{parts}</pre></details>"
    )
