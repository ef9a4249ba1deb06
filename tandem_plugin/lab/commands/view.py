"""``tandem view``: rollouts as one HTML page, coloured by author."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.lab.rollouts.grades import Grades
    from tandem_plugin.lab.viewer.index import Choice, PageIndex
    from tandem_plugin.lab.viewer.page import ShownResponses

__all__ = ["view"]


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
            help="The tokenizer of the run, as for `tandem boundaries`. Default: the "
            "recorded one, or the one next to the file."
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Show only these training steps, such as 1,50,100-200.")
    ] = None,
    problems: Annotated[
        str | None,
        typer.Option(help="Show only these problems, by their numbers on the page, such as 3,7."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of responses per problem and step."),
    ] = None,
    megabytes: Annotated[
        float, typer.Option(min=0.1, max=2000, help="Maximum size of the page in MB.")
    ] = 20,
    grades: Annotated[
        Path | None,
        typer.Option(
            help="The grades of the rollout file, written by `tandem grade --out`. "
            "Default: NAME.grades.jsonl next to NAME.jsonl."
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The page's title. Default: the file's name.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page of rollouts, each coloured by author.

    The page shows spans and handoffs, filters by step, reward and problem, searches and sorts, and
    follows one problem over the steps of a run. Responses that do not fit are left out evenly over
    steps, problems and samples, and the page says so: use a larger --megabytes to show more, and
    --steps, --problems and --samples to select others. The page makes no network requests, and text
    of a response cannot run as code in it. Lines that cannot be read are listed on the page. The
    exit code is 1 if no line can be read, or if the tokenizer is not the one that the responses
    were written with. Input files are never overwritten.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.files import InputFiles, write_file
    from tandem_plugin.files.checkpoints import model_files
    from tandem_plugin.lab.rollouts.rollout_file import rollout_files, run_file
    from tandem_plugin.lab.rollouts.tokenizer import find_tokenizer
    from tandem_plugin.lab.viewer.index import Choice, Numbers
    from tandem_plugin.lab.viewer.page import make_page, page_content
    from tandem_plugin.progress import waiting

    files = rollout_files(rollouts)
    asked = Choice(
        None if steps is None else Numbers.read("--steps", steps),
        None if problems is None else Numbers.read("--problems", problems),
        samples,
    )
    page = out or _page_of(rollouts)
    chosen = tokenizer or find_tokenizer(rollouts)
    graded = _grades_of(files, grades)
    inputs = InputFiles(
        rollouts=files,
        settings=map(run_file, files),
        grades=graded.values(),
        tokenizer=model_files(chosen),
    )
    inputs.check_outputs(page)
    room = int(megabytes * 1e6)
    shown = _shown(files, asked, graded, chosen, Vocabulary.from_path(chosen), room)
    with waiting("write the page"):
        content = page_content(shown, room)
        write_file(page, make_page(title or rollouts.resolve().name, content.index, content.parts))
    whole, unread = content.index["whole"], shown.listing.unread
    result: dict[str, Any] = {
        "page": str(page),
        "responses": len(shown.responses),
        "problems": len(content.index["problems"]),
        "steps": len({one.step for one in shown.responses} - {None}),
        "of": whole,
        "unread_lines": unread.count,
        "bytes": page.stat().st_size,
    }
    if json:
        print_json(result)
        return
    _report(result)
    if unread.count:
        file, line, message = unread.lines[0]
        where = f"{file}, line {line}" if file else f"line {line}"
        echo(
            f"Unreadable lines: {unread.count:,}. The first is {where}: {message}",
            err=True,
        )


def _page_of(rollouts: Path) -> Path:
    if rollouts.is_dir():
        folder = rollouts.resolve()
        return folder.with_name(folder.name + ".html")
    return rollouts.with_suffix(".html")


def _grades_of(files: Sequence[Path], given: Path | None) -> dict[int, Path]:
    """The file of grades of each file that has one, by its place."""
    from tandem_plugin.lab.rollouts.grades import grades_beside
    from tandem_plugin.lab.rollouts.rollout import RolloutError

    if given is None:
        return {i: found for i, file in enumerate(files) if (found := grades_beside(file))}
    if len(files) > 1:
        raise RolloutError("TP985")
    return {0: given}


def _shown(
    files: Sequence[Path],
    asked: Choice,
    graded: dict[int, Path],
    tokenizer: str,
    vocabulary: Vocabulary,
    room: int,
) -> ShownResponses:
    """List what the files hold, and read what the page shows of it."""
    from tandem_plugin.lab.rollouts.grades import Grades
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.viewer.index import PageIndex
    from tandem_plugin.lab.viewer.page import ShownResponses
    from tandem_plugin.lab.viewer.responses import Decoding
    from tandem_plugin.progress import ShownProgress
    from tandem_plugin.spans import TokenBytes

    records: dict[int, Grades] = {place: Grades(path) for place, path in graded.items()}
    listing = PageIndex(files)
    shown = ShownResponses(listing, TokenBytes(vocabulary), Decoding(vocabulary), records)
    with ShownProgress() as progress:
        task = progress.add_task("list", total=sum(file.stat().st_size for file in files))
        listing.read(lambda count: progress.advance(task, count))
        chosen = asked.of(listing.responses, listing.numbers)
        task = progress.add_task("view", total=len(chosen))
        shown.take(chosen, room, lambda: progress.advance(task))
    if listing.responses and not chosen:
        steps, first, last = _recorded(listing)
        raise RolloutError("TP986", steps=steps, first=first, last=last)
    _check(shown, tokenizer, files)
    return shown


def _recorded(index: PageIndex) -> tuple[str, int, int]:
    """The steps that there are, in words, and the first and the last problem."""
    steps = sorted({one.step for one in index.responses if one.step is not None})
    span = f"steps {steps[0]} to {steps[-1]}" if steps else "no steps"
    return span, min(index.numbers), max(index.numbers)


def _check(shown: ShownResponses, tokenizer: str, files: Sequence[Path]) -> None:
    """Raise where the tokenizer is another run's, or nothing can be shown."""
    from tandem_plugin.errors import TokenizerError
    from tandem_plugin.lab.rollouts.rollout import RolloutError

    name = str(files[0] if len(files) == 1 else files[0].parent)
    if len(shown.misread) > len(shown.responses):
        raise TokenizerError(
            "TP987",
            tokenizer=tokenizer,
            name=name,
            misread=len(shown.misread),
            first=shown.misread[0],
        )
    if not shown.responses:
        unread, reason = shown.listing.unread, ""
        if unread.count:
            file, line, why = unread.lines[0]
            reason = f": {f'{file}, ' if file else ''}line {line}: {why.rstrip('.')}"
        raise RolloutError("TP988", name=name, reason=reason)


def _report(result: dict[str, Any]) -> None:
    echo(
        f"Wrote {result['page']}: {result['responses']:,} responses, {result['bytes'] / 1e6:.1f} "
        "MB."
    )
    if result["responses"] < result["of"]["responses"]:
        there = result["of"]
        parts = [f"{result['problems']:,} of {there['problems']:,} problems"]
        if there["steps"]:
            parts.insert(0, f"{result['steps']:,} of {there['steps']:,} steps")
        echo(
            f"Showing {', '.join(parts)}; there are {there['responses']:,} responses in total. Use "
            "--steps, --problems and --samples to select others, --megabytes to show more."
        )
