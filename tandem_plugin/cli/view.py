"""``tandem view``: rollouts as one HTML page, coloured by author."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from tandem_plugin.viewer.responses import ViewedResponses

__all__ = ["view"]


def view(
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="Rollouts, one JSON object a line, as `tandem rollout` or a training run leaves "
            "them."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page to write; without it, the rollouts' name with .html."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run, as for `tandem boundaries`; without it, the one that "
            "was noted or lies beside the file."
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The page's title; without it, the file's name.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of rollouts, each coloured by author.

    The page shows spans and handoffs, filters by reward and problem, searches and sorts. It makes
    no request of any network, and text of a response cannot run in it. A line that cannot be read
    is listed on the page; exit code 1 when no line can, or when the tokenizer is not the one that
    the responses were written with. No file that is read is ever written over.
    """
    from tandem_plugin.cli.tokenizers import find_tokenizer, model_files, read_vocabulary
    from tandem_plugin.errors import TokenizerError
    from tandem_plugin.files import InputFiles, write_file
    from tandem_plugin.rollouts.rollout import RolloutError
    from tandem_plugin.rollouts.rollout_file import run_file
    from tandem_plugin.viewer.decoding import Decoding
    from tandem_plugin.viewer.page import make_page
    from tandem_plugin.viewer.responses import ViewedResponses
    from tandem_plugin.viewer.token_bytes import TokenBytes

    if not os.path.isfile(rollouts):
        raise RolloutError(f"There is no file {str(rollouts)!r}.")
    page = out or rollouts.with_suffix(".html")
    chosen = tokenizer or find_tokenizer(rollouts)
    inputs = InputFiles(
        rollouts=[rollouts], settings=[run_file(rollouts)], tokenizer=model_files(chosen)
    )
    inputs.check_outputs(page)
    vocabulary = read_vocabulary(chosen)
    viewed = ViewedResponses(TokenBytes(vocabulary), Decoding(vocabulary))
    _read(rollouts, viewed)
    if len(viewed.misread) > len(viewed.responses):
        raise TokenizerError(
            f"{chosen!r} is not the tokenizer of {str(rollouts)!r}: of {len(viewed.misread):,} "
            f"lines the token ids do not give what is recorded. {viewed.misread[0]} Give the run's "
            "own tokenizer with --tokenizer."
        )
    if not viewed.responses:
        reason = f": line {viewed.unread[0][0]}: {viewed.unread[0][1]}" if viewed.unread else "."
        raise RolloutError(f"{str(rollouts)!r} holds no rollouts that can be shown{reason}")
    write_file(page, make_page(title or rollouts.name, viewed.payload()))
    result: dict[str, Any] = {
        "page": str(page),
        "responses": len(viewed.responses),
        "problems": len(viewed.problems),
        "unread_lines": viewed.unread_rows,
        "bytes": page.stat().st_size,
    }
    if json:
        print_json(result)
        return
    typer.echo(f"Wrote {page}: {result['responses']:,} responses, {result['bytes'] / 1e6:.1f} MB.")
    if viewed.unread_rows:
        line, message = viewed.unread[0]
        typer.echo(
            f"Lines that could not be read: {viewed.unread_rows:,}, the first is line {line}: "
            f"{message}",
            err=True,
        )


def _read(path: Path, viewed: ViewedResponses) -> None:
    """Read every row, with a progress bar on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from tandem_plugin.rollouts.rollout import read_rollouts

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("view", total=path.stat().st_size)
        viewed.add_all(read_rollouts(path, lambda count: progress.advance(task, count)))
