"""``tandem data prepare``: problem sets in a trainer's format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tandem_plugin.lab.commands.options import (
    FieldsOption,
    MapOption,
    ProtocolOption,
    complete_problems,
)
from tandem_plugin.terminal.arguments import rows_of_stdin
from tandem_plugin.terminal.output import JsonOption, echo, print_fields, print_json
from tandem_plugin.terminal.root import TandemCommand

if TYPE_CHECKING:
    from tandem_plugin.lab.data import Prepared, ProblemSet

data = typer.Typer(
    help="Problem sets, prepared for a trainer.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MOST_LISTED = 10
_SOURCE = (
    "A .jsonl, .json or .parquet file, - for JSON Lines from standard input, "
    "owner/name[:config][#split] on the Hub, or a named set: deepscaler, aime24, aime25, aime26, "
    "aime24-26, amc23, amc23-25, minerva, math500, olympiad581, gsm8k, gsm8k-test; or "
    "reasoning-gym:TASK[,key=value...], a reasoning-gym task with count, seed and its own settings."
)


@data.command(cls=TandemCommand, short_help="Write a problem set in a trainer's format.")
def prepare(
    source: Annotated[
        str,
        typer.Argument(callback=rows_of_stdin, autocompletion=complete_problems, help=_SOURCE),
    ],
    to: Annotated[
        Literal["verl", "openrlhf", "trl", "skyrl"],
        typer.Option(help="The trainer. skyrl, and trl without images, read verl's format."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")],
    heldout: Annotated[int, typer.Option(min=0, help="Number of problems to hold out.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed that selects the problems to hold out.")] = 0,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            help="A local file of a named set, used instead of downloading it. Can be repeated."
        ),
    ] = None,
    field: FieldsOption = None,
    map: MapOption = None,
    bad_rows: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="How to handle invalid rows: stop at the first, or skip and list them."),
    ] = "stop",
    instruction: Annotated[
        str | None, typer.Option(help="The instruction to answer in a box. Default: a common one.")
    ] = None,
    template: Annotated[
        str, typer.Option(help="Template of the user turn, with {problem} and {instruction}.")
    ] = "{problem}\n{instruction}",
    system: Annotated[str | None, typer.Option(help="A system turn to put first.")] = None,
    protocol: ProtocolOption = None,
    json: JsonOption = False,
) -> None:
    """Write a problem set in a trainer's format, with the instruction to answer in a box.

    A problem that already says how to answer keeps its own instruction. Fields that are not read
    are listed, and rows whose layout is not known are rejected: --field or --map says how they are
    read. The folder contains train, heldout if requested, and manifest.json, of one set for one
    trainer; the same source, settings and seed produce the same files.
    """
    from tandem_plugin.lab.data import PromptTemplate, layout_of, read_problems
    from tandem_plugin.lab.data import prepare as write
    from tandem_plugin.lab.protocols import defaults, record
    from tandem_plugin.progress import waiting
    from tandem_plugin.terminal.processes import end_with_this_process

    end_with_this_process()  # a function of --map may start what it likes
    stated = {} if protocol is None else defaults(protocol)
    always, draws_rows = bool(stated.get("always_instructed")), bool(stated.get("draws_rows"))
    text = _instruction(template) if instruction is None else instruction
    used = {
        "heldout": heldout,
        "template": template,
        "instruction": text,
        "always_instructed": always,
        "draws_rows": draws_rows,
    }
    noted = record(protocol, used)
    with waiting(f"read {source}", bar=True):
        problems = read_problems(
            source, bad_rows, layout=layout_of(field or (), map), files=file or ()
        )
    with waiting(f"prepare {len(problems):,} problems", bar=True):
        prepared = write(
            problems,
            to,
            out,
            heldout=heldout,
            seed=seed,
            template=PromptTemplate(template, text, system, always),
            draws_rows=draws_rows,
            protocol=noted,
        )
    if json:
        print_json(_result(prepared))
        return
    counts = prepared.rows.items()
    rows = {name: f"{count:,} rows  {prepared.files[name]}" for name, count in counts}
    duplicates = f"{prepared.contents['duplicates']:,}"
    images = prepared.contents.get("images")
    if images:
        rows["images"] = f"{images:,}"
    print_fields({**rows, "duplicates": duplicates, "manifest": str(prepared.manifest)})
    for line in _notes(problems, prepared):
        echo(line)


def _result(prepared: Prepared) -> dict[str, Any]:
    """The output with ``--json``."""
    noticed = (
        *("name", "rows", "checksums", "duplicates", "near_duplicates", "contradictions"),
        *("unreadable_golds", "bad_rows", "unread_fields", "without_box"),
    )
    return {
        **{name: prepared.contents[name] for name in noticed},
        **({"images": prepared.contents["images"]} if "images" in prepared.contents else {}),
        "files": {name: str(path) for name, path in prepared.files.items()},
        "replaced": prepared.replaced,
        "manifest": str(prepared.manifest),
        "protocol": prepared.contents.get("protocol"),
    }


def _instruction(template: str) -> str:
    """The common instruction, unless the template contains its own."""
    from tandem_plugin.lab.data import INSTRUCTION
    from tandem_plugin.lab.data.instructions import says_how_to_answer

    is_own = "{instruction}" not in template and says_how_to_answer(template)
    return "" if is_own else INSTRUCTION


def _notes(problems: ProblemSet, prepared: Prepared) -> Iterator[str]:
    """What the files do not have, and what they replaced."""
    from tandem_plugin.lab.data.instructions import without_box_note

    contents = prepared.contents
    if (before := prepared.replaced) is not None:
        counts = ", ".join(f"{count:,} {name}" for name, count in before["rows"].items())
        seed = "" if before.get("seed") is None else f", seed {before['seed']}"
        yield f"replaced: other problems of {before['name']} ({counts}{seed})"
    if count := contents["contradictions"]:
        yield f"contradictions: {count:,} with the text of an earlier problem and another answer"
    yield from filter(None, [problems.unread_note(), without_box_note(contents["without_box"])])
    yield from _listed(
        "golds that the grader cannot read",
        [f"row {gold['row']}: {gold['gold']!r}" for gold in contents["unreadable_golds"]],
    )
    yield from _listed(
        "near duplicates on both sides",
        [
            f"held-out row {pair['heldout']} is like row {pair['train']} ({pair['likeness']})"
            for pair in contents["near_duplicates"]
        ],
    )
    yield from _listed("skipped", [f"row {bad.row}: {bad.reason}" for bad in problems.bad_rows])


def _listed(title: str, entries: Sequence[str]) -> Iterator[str]:
    """A line for each of the first entries, and how many there are."""
    if entries:
        yield f"{title}: {len(entries):,}"
    yield from (f"  {entry}" for entry in entries[:_MOST_LISTED])
    if len(entries) > _MOST_LISTED:
        yield f"  and {len(entries) - _MOST_LISTED:,} more, in the manifest"
