"""``tandem view``: rollouts as one HTML page, coloured by author."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.terminal.output import JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.viewer.live import RolloutsPage


def view(
    rollouts: Annotated[
        list[Path],
        typer.Argument(
            help="A rollout file with one JSON object per line, written by `tandem "
            "rollout` or a training run; or a folder of such files, such as one dump "
            "per step, or the folder of an evaluation. Several are shown side by side on the "
            "same prompts."
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
            "recorded one, or the one next to the file.",
        ),
    ] = None,
    megabytes: Annotated[
        float, typer.Option(min=0.1, max=2000, help="Approximate maximum size of the page in MB.")
    ] = 20,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Keep the page current while the rollouts are written, until Ctrl-C. They may be "
            "missing yet. An open page loads itself again, at the same place.",
        ),
    ] = False,
    table: Annotated[
        Literal["wandb"] | None,
        typer.Option(
            help="Write a table of all responses instead of the page, NAME.table.json: "
            "`wandb.Table(**json.load(file))` takes it.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of rollouts, each coloured by author.

    The page lists the responses next to the one that is open, folds long ones, shows the samples of
    a problem side by side, searches, filters, sorts, and draws reward and senior share by step. Its
    address carries what was chosen. Of two or more runs, it shows the responses to the same prompt
    in columns. If not all responses fit, it shows those of random problems and says so: use a
    larger --megabytes, or pass the file of one step. Grades in NAME.grades.jsonl next to NAME.jsonl
    are shown with the responses. Lines that cannot be read are listed on the page. The exit code is
    1 if no line can be read, or if the tokenizer is not the one that the responses were written
    with. Input files, and files that are no page of this command, are never overwritten.
    """
    from tandem_plugin.lab.rollouts.rollout_file import rollout_files
    from tandem_plugin.lab.viewer.live import RolloutsPage

    for run in rollouts:
        if not follow or not (run.exists() or run.absolute().parent.is_dir()):
            rollout_files(run)  # raises
    first, *other_runs = rollouts
    if table and follow:
        raise ConfigError("view-table-follows")
    place = out or _page_of(rollouts, ".table.json" if table else ".html")
    page = RolloutsPage(first, place, tokenizer, int(megabytes * 1e6), further=other_runs)
    result = _follow(page) if follow else page.write_table() if table else page.write()
    if json:
        print_json(result)
        return
    _report(result)


def _follow(page: RolloutsPage) -> dict[str, Any]:
    """Keep the page current until Ctrl-C, or SIGTERM, which ends background jobs."""
    import signal

    from tandem_plugin.lab.viewer.live import follow

    def on_written(shown: dict[str, Any]) -> None:
        echo(f"{_counted(shown)}, {time.strftime('%H:%M:%S')}", err=True)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with suppress(KeyboardInterrupt):
            page.read_tokenizer()
            page.update()
            echo(f"Open {page.page.absolute().as_uri()} in a browser.", err=True)
            echo("It loads itself again as responses come. Ctrl-C ends this.", err=True)
            follow(page, on_written)
        return page.finish()
    finally:
        signal.signal(signal.SIGTERM, before)


def _page_of(runs: Sequence[Path], ending: str) -> Path:
    """The page of a run is next to it; a page of several is in the folder that they share."""
    if len(runs) > 1:
        from tandem_plugin.lab.viewer.live import run_names

        shared = os.path.commonpath([run.resolve().parent for run in runs])
        return Path(shared, "-and-".join(run_names(runs)).replace("/", "-") + ending)
    (rollouts,) = runs
    if rollouts.suffix == ".jsonl" and not rollouts.is_dir():
        return rollouts.with_suffix(ending)
    from tandem_plugin.lab.rollouts.rollout import RolloutError

    folder = rollouts.resolve()
    if not folder.name:
        raise RolloutError("rollout-file-name-invalid", path=rollouts)
    return folder.with_name(folder.name + ending)


def _counted(result: dict[str, Any]) -> str:
    steps = f", {result['steps']:,} steps" if result["steps"] else ""
    return f"{result['responses']:,} responses{steps}"


def _report(result: dict[str, Any]) -> None:
    from rich.filesize import decimal

    written = result.get("page") or result["table"]
    echo(f"Wrote {written}: {result['responses']:,} responses, {decimal(result['bytes'])}.")
    if result.get("without_room"):
        totals = result["of"]
        shown = (
            f"{result[name]:,} of {totals[name]:,} {name}"
            for name in ("responses", "problems", "steps")
            if totals[name]
        )
        echo(f"Showing {', '.join(shown)}. Use --megabytes to show more.")
    if unread := result["unread_lines"]:
        echo(f"Unreadable lines: {unread:,}. {result['first_unread']}.", err=True)
