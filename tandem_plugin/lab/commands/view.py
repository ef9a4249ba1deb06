"""``tandem view``: rollouts as one HTML page, coloured by author."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.viewer.page import ShownResponses


def view(
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="A rollout file with one JSON object per line, written by `tandem "
            "rollout` or a training run; or a folder of such files, such as one dump "
            "per step."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page to write. Default: the rollouts' name with .html."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run: its folder, file or Hub name. Default: the "
            "recorded one, or the one next to the file."
        ),
    ] = None,
    megabytes: Annotated[
        float, typer.Option(min=0.1, max=2000, help="Approximate maximum size of the page in MB.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of rollouts, each coloured by author.

    The page lists the responses next to the one that is open, folds long ones, shows the samples of
    a problem side by side, searches, filters by problem, step and reward, and sorts. If not all
    responses fit, it shows those of random problems and says so: use a larger --megabytes, or pass
    the file of one step. Grades in NAME.grades.jsonl next to NAME.jsonl are shown with the
    responses. Lines that cannot be read are listed on the page. The exit code is 1 if no line can
    be read, or if the tokenizer is not the one that the responses were written with. Input files,
    and files that are no page of this command, are never overwritten.
    """
    from tandem_plugin.files import check_outputs, check_page, write_file
    from tandem_plugin.files.checkpoints import model_files
    from tandem_plugin.lab.rollouts.rollout_file import (
        find_tokenizer,
        grades_file,
        rollout_files,
        run_file,
    )
    from tandem_plugin.lab.viewer.page import make_page, page_index
    from tandem_plugin.progress import waiting

    files = rollout_files(rollouts)
    page = out or _page_of(rollouts)
    chosen = tokenizer or find_tokenizer(rollouts)
    inputs: dict[str, Iterable[Path]] = {
        "rollouts": files,
        "settings": map(run_file, files),
        "grades": map(grades_file, files),
        "tokenizer": model_files(chosen),
    }
    check_outputs(inputs, page)
    check_page(page)
    shown = _shown(files, chosen, int(megabytes * 1e6))
    with waiting("write the page"):
        index = page_index(shown)
        title = "/".join(rollouts.resolve().parts[-2:])
        write_file(page, make_page(title, index, shown.parts))
    result: dict[str, Any] = {
        "page": str(page),
        "responses": len(shown.responses),
        "problems": len(index["problems"]),
        "steps": len({one.step for one, _ in shown.responses} - {None}),
        "of": index["whole"],
        "unread_lines": len(shown.unread),
        "bytes": page.stat().st_size,
    }
    if json:
        print_json(result)
        return
    _report(result)
    if shown.unread:
        echo(f"Unreadable lines: {len(shown.unread):,}. {_first_unread(shown)}.", err=True)


def _page_of(rollouts: Path) -> Path:
    if rollouts.is_dir():
        folder = rollouts.resolve()
        return folder.with_name(folder.name + ".html")
    return rollouts.with_suffix(".html")


def _shown(files: Sequence[Path], tokenizer: str, room: int) -> ShownResponses:
    """Index the files, and read what the page shows of them."""
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.lab.viewer.page import ShownResponses
    from tandem_plugin.progress import ShownProgress

    shown = ShownResponses(files, Vocabulary.from_path(tokenizer))
    with ShownProgress() as progress:
        task = progress.add_task("list", total=sum(file.stat().st_size for file in files))
        shown.read(lambda count: progress.advance(task, count))
        task = progress.add_task("view", total=len(shown.listed))
        shown.take(room, lambda: progress.advance(task))
    _check(shown, tokenizer, files)
    return shown


def _check(shown: ShownResponses, tokenizer: str, files: Sequence[Path]) -> None:
    """Raise if the tokenizer is that of another run, or nothing can be shown."""
    from tandem_plugin.errors import TokenizerError
    from tandem_plugin.lab.rollouts.rollout import RolloutError

    name = str(files[0] if len(files) == 1 else files[0].parent)
    if len(shown.misread) > len(shown.responses):
        raise TokenizerError(
            "view-tokenizer-differs",
            tokenizer=tokenizer,
            name=name,
            misread=len(shown.misread),
            first=shown.misread[0],
        )
    if not shown.responses:
        raise RolloutError("view-nothing-to-show", name=name, reason=_first_unread(shown))


def _first_unread(shown: ShownResponses) -> str:
    """Where the first line is that cannot be shown, and why."""
    if not shown.unread:
        return "it is empty"
    file, line, why = shown.unread[0]
    return f"{f'{file}, ' if file else ''}line {line}: {why.rstrip('.')}"


def _report(result: dict[str, Any]) -> None:
    from rich.filesize import decimal

    whole = result["of"]
    echo(f"Wrote {result['page']}: {result['responses']:,} responses, {decimal(result['bytes'])}.")
    if result["responses"] < whole["responses"]:
        shown = (
            f"{result[name]:,} of {whole[name]:,} {name}"
            for name in ("responses", "problems", "steps")
            if whole[name]
        )
        echo(f"Showing {', '.join(shown)}. Use --megabytes to show more.")
