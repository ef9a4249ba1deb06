"""``tandem show``: one response in the terminal, coloured by author."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tandem_plugin.terminal.output import JsonOption, print_json, text_console

if TYPE_CHECKING:
    from rich.text import Text

    from tandem_plugin.lab.rollouts.rollout import Rollout
    from tandem_plugin.spans import AuthoredText

_STYLES = ("yellow", "bold blue", "dim", "dim", "blue")
"""Of junior, senior, neither, unknown, and the senior where that is not trained on."""
_NAMES = ("junior", "senior", "neither", "unknown", "senior-untrained")
_QUOTES = "«»"
"""Around what the junior wrote, where there are no colours."""


def show(
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="A rollout file with one JSON object per line, written by `tandem rollout` or a "
            "training run."
        ),
    ],
    row: Annotated[
        int, typer.Option(min=1, help="The line of the file, counted from 1, as on the page.")
    ] = 1,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run: its folder, file or Hub name. Default: the "
            "recorded one, or the one next to the file.",
        ),
    ] = None,
    color: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(help="auto: colours if stdout is a terminal."),
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Print one response of a rollout file with its prompt, coloured by author.

    The senior's text is blue, the junior's yellow; without colours, the junior's is in «quotation
    marks». Control characters of the text are written out.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.lab.rollouts.rollout_file import find_tokenizer
    from tandem_plugin.lab.viewer.responses import authors_of, facts_of, prompt_of, turns_of
    from tandem_plugin.spans import TokenBytes, authored_text

    response = _row(rollouts, row)
    vocabulary = Vocabulary.from_path(tokenizer or find_tokenizer(rollouts))
    _check_tokenizer(vocabulary, tokenizer, rollouts, response)
    authored = authored_text(response.response_ids, authors_of(response), TokenBytes(vocabulary))
    turns = turns_of(prompt_of(response.fields))
    facts = facts_of(response, _grade(rollouts, response))
    if json:
        print_json(_as_json(rollouts, response, authored, facts))
        return
    console = text_console({"auto": None, "always": True, "never": False}[color])
    is_coloured = console.color_system is not None and not console.no_color
    for role, text in turns:
        console.print(_text(f"{role}: {text}" if role else text, "dim"))
    console.print()
    console.print(_response(authored, is_coloured))
    console.print()
    console.print(_text(", ".join(facts), "dim"))


def _row(rollouts: Path, number: int) -> Rollout:
    """The row at a line; raises :class:`RolloutError` if it is none, or there is no such line."""
    from tandem_plugin.lab.rollouts.rollout import MalformedRow, RolloutError, read_rollouts

    last = 0
    for response in read_rollouts(rollouts):
        last = response.line
        if last < number:
            continue
        if last == number and not isinstance(response, MalformedRow):
            return response
        if last == number and isinstance(response, MalformedRow):
            reason = response.message.rpartition(" [")[0]  # without its code
            raise RolloutError("show-row-unreadable", file=rollouts, row=number, reason=reason)
        break
    raise RolloutError("show-row-missing", file=rollouts, row=number, last=last)


def _grade(rollouts: Path, response: Rollout) -> Mapping[str, Any] | None:
    from tandem_plugin.lab.rollouts.rollout_file import Grades, grades_file

    grades = grades_file(rollouts)
    return Grades(grades).of(response) if grades.is_file() else None


def _check_tokenizer(
    vocabulary: Any, tokenizer: str | None, rollouts: Path, response: Rollout
) -> None:
    from tandem_plugin.errors import TokenizerError
    from tandem_plugin.lab.rollouts.rollout_file import find_tokenizer
    from tandem_plugin.lab.viewer.responses import Decoding

    if misread := Decoding(vocabulary).mismatch(response):
        raise TokenizerError(
            "view-tokenizer-differs",
            tokenizer=tokenizer or find_tokenizer(rollouts),
            name=str(rollouts),
            misread=1,
            first=misread,
        )


def _as_json(
    rollouts: Path, response: Rollout, authored: AuthoredText, facts: list[str]
) -> dict[str, Any]:
    spans = zip(authored.spans, authored.span_texts, strict=True)
    return {
        "rollouts": str(rollouts),
        "row": response.line,
        "facts": facts,
        "spans": [
            {"author": _NAMES[author], "tokens": tokens, "text": text}
            for (author, tokens), text in spans
        ],
    }


def _response(authored: AuthoredText, is_coloured: bool) -> Text:
    """The text by author: a character of both has the style of the first."""
    from tandem_plugin.spans import JUNIOR

    response = _text("")
    for (author, _), text in zip(authored.spans, authored.span_texts, strict=True):
        is_quoted = author == JUNIOR and not is_coloured
        response.append_text(_text(text.join(_QUOTES) if is_quoted else text, _STYLES[author]))
    return response


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    from tandem_plugin.errors import printable

    return Text(printable(text), style=style)
