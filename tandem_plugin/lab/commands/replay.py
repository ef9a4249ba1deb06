"""``tandem replay``: does recorded authorship agree with its own seed and token ids?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tandem_plugin.terminal.assignments import SettingsOption, assignments
from tandem_plugin.terminal.output import JsonOption, print_fields, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.rollouts.audit import Audit, RuleBook

__all__ = ["replay"]


def replay(
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="Rollouts, one JSON object a line, as a training run leaves them; or a folder of "
            "such files, as a dump a step."
        ),
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run, as for `tandem boundaries`; without it, the folder "
            "tokenizer/ or checkpoint/ beside the file."
        ),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="The schedule of rows that name none; without it, word.")
    ] = None,
    boundaries: Annotated[
        str | None, typer.Option(help="The boundary resolver of rows that name none.")
    ] = None,
    settings: SettingsOption = None,
    without_seed: Annotated[
        bool,
        typer.Option(
            "--without-seed",
            help="The rows are traces of others, with no seed: look only where authors change, and "
            "whether shares are as the schedule draws them.",
        ),
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="How many differences to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Derive the authorship of every rollout again and compare it with what was recorded.

    A row holds response_ids, authorship (zeros and ones), tandem_seed, tandem_fingerprint and,
    where it has them, its settings in tandem_schedule and, for a response of several turns, its
    tandem_segments: [seed, start, stop] of each, with the schedules that calls asked for in
    tandem_segment_schedules. Tokens that two calls could have written with different authors are
    in tandem_unknown, as [start, stop]: authorship is there what the segments replay to, and such
    tokens are counted apart. A response that the senior wrote alone says "tandem_seed": null. What
    --set gives is for rows that do not carry it. Exit code 1 on any
    difference or malformed row.

    With --without-seed a row holds token_ids and tandem_model_mask, or model_mask, as the paper's
    release and a reproduction of it have them (their cap of 32 is `--set cap=31` here), or
    response_ids and authorship. Authors may change only where the schedule draws. The senior's
    share of draws, and the share of draws that change the author, are tested against p: traces of
    the law itself fail with a chance of 0.001. The differences that are found with a chance of 0.8
    are printed. Exit code 1 on a change elsewhere, a share that is not the law's, or a
    malformed row.
    """
    from tandem_plugin.lab.rollouts.audit import RuleBook
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.rollout_file import rollout_files
    from tandem_plugin.lab.rollouts.tokenizer import find_tokenizer
    from tandem_plugin.terminal.tokenizers import read_vocabulary

    files = rollout_files(rollouts)
    options = _options(schedule, boundaries, settings or [])
    chosen = tokenizer or find_tokenizer(rollouts)
    if without_seed:
        _without_seed(files, chosen, options, rollouts, show, json)
    audit = _audit(files, RuleBook(read_vocabulary(chosen), options), show)
    if not audit.rows + audit.solo_rows + audit.differing_rows:
        raise RolloutError("TP980", rollouts=rollouts)
    result = _result(audit, rollouts, chosen)
    if json:
        print_json(result)
    else:
        _print(result)
    raise typer.Exit(0 if result["ok"] else 1)


def _without_seed(
    files: Sequence[Path],
    tokenizer: str,
    options: dict[str, Any],
    rollouts: Path,
    show: int,
    json: bool,
) -> NoReturn:
    """Audit traces that have no seed."""
    from dataclasses import asdict

    from tandem_plugin.config import TandemConfig
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.traces import TraceAudit, read_traces
    from tandem_plugin.rules import TandemRules
    from tandem_plugin.schedules.bernoulli import BernoulliSchedule
    from tandem_plugin.terminal.tokenizers import read_vocabulary

    rule = TandemRules(TandemConfig.from_mapping(options), read_vocabulary(tokenizer)).default
    if not isinstance(rule.schedule, BernoulliSchedule):
        raise RolloutError("TP797", name=rule.schedule.name)
    audit = TraceAudit(rule.schedule, rule.boundaries, show)
    for file in files:
        audit.add(read_traces(file))
    if not audit.rows + audit.differing_rows:
        raise RolloutError("TP980", rollouts=rollouts)
    tests = audit.tests()
    ok = not audit.differing_rows and all(test.is_as_expected for test in tests.values())
    result = {
        "ok": ok,
        "rollouts": str(rollouts),
        "tokenizer": tokenizer,
        "rows": audit.rows,
        "tokens": audit.tokens,
        "senior_share": audit.senior_tokens / audit.tokens if audit.tokens else None,
        "draws": audit.draws,
        "wrong_changes": audit.wrong_changes,
        "differing_rows": audit.differing_rows,
        "tests": {
            name: {
                **asdict(test),
                "p_value": test.p_value,
                "detectable": test.detectable,
                "ok": test.is_as_expected,
            }
            for name, test in tests.items()
        },
        "shown": [asdict(difference) for difference in audit.differences],
    }
    if json:
        print_json(result)
    else:
        shown = ("rows", "tokens", "draws", "wrong_changes", "differing_rows")
        print_fields({name.replace("_", " "): f"{result[name]:,}" for name in shown})
        console = table_console(soft_wrap=True)
        for name, test in tests.items():
            console.print(
                f"{name}: {test.observed:.4f}, the law has {test.expected:.4f} (p = "
                f"{test.p_value:.2g}; a difference of {test.detectable:.4f} is found 4 times of 5)"
            )
        for difference in audit.differences:
            console.print(f"line {difference.line}: {difference.message}", markup=False)
        console.print("As the schedule has it." if ok else "Not as the schedule has it.")
    raise typer.Exit(0 if ok else 1)


def _options(schedule: str | None, boundaries: str | None, settings: list[str]) -> dict[str, Any]:
    options = assignments("--set", settings)
    if schedule is not None:
        options["schedule"] = schedule
    if boundaries is not None:
        options["boundaries"] = boundaries
    return options


def _audit(files: Sequence[Path], rules: RuleBook, keep: int) -> Audit:
    """Read and compare every row, with a progress bar on a terminal's stderr."""
    from tandem_plugin.lab.rollouts.audit import Audit
    from tandem_plugin.lab.rollouts.rollout import read_rollouts
    from tandem_plugin.progress import ShownProgress

    audit = Audit(rules, keep)
    with ShownProgress() as progress:
        task = progress.add_task("replay", total=sum(file.stat().st_size for file in files))
        for file in files:
            audit.file = file.name if len(files) > 1 else None
            audit.add(read_rollouts(file, lambda count: progress.advance(task, count)))
    return audit


def _result(audit: Audit, rollouts: Path, tokenizer: str) -> dict[str, Any]:
    from dataclasses import asdict

    def per_row(total: int) -> float | None:
        return total / audit.rows if audit.rows else None

    kinds = ("authorship", "length", "fingerprint", "malformed")
    return {
        "ok": not audit.differing_rows,
        "rollouts": str(rollouts),
        "tokenizer": tokenizer,
        "rows": audit.rows,
        "solo_rows": audit.solo_rows,
        "tokens": audit.tokens,
        "unknown_tokens": audit.unknown_tokens,
        "senior_share": audit.senior_tokens / audit.tokens if audit.tokens else None,
        "spans_per_response": per_row(audit.spans),
        "handoffs_per_response": per_row(audit.handoffs),
        "differing_rows": audit.differing_rows,
        "differences": {kind: audit.counts[kind] for kind in kinds},
        "shown": [asdict(difference) for difference in audit.differences],
    }


def _print(result: dict[str, Any]) -> None:
    def number(value: float | None, form: str) -> str:
        return "none" if value is None else format(value, form)

    kinds = ", ".join(f"{kind} {count:,}" for kind, count in result["differences"].items())
    rows = {
        "tokenizer": result["tokenizer"],
        "tandem rows": f"{result['rows']:,}",
        "rows of the senior alone": f"{result['solo_rows']:,}",
        "tokens": f"{result['tokens']:,}",
        "tokens of unknown author": f"{result['unknown_tokens']:,}",
        "senior share": number(result["senior_share"], ".3f"),
        "spans per response": number(result["spans_per_response"], ".1f"),
        "handoffs per response": number(result["handoffs_per_response"], ".1f"),
        "differences": kinds,
    }
    print_fields(rows)
    console = table_console(soft_wrap=True)
    for difference in result["shown"]:
        where = f"{difference['file']}, " if difference["file"] else ""
        console.print(
            f"{where}line {difference['line']}, {difference['kind']}: {difference['message']}",
            markup=False,
        )
    if result["ok"]:
        console.print("Every row agrees with its replay.", style="green")
    else:
        count = f"{result['differing_rows']:,}"
        console.print(f"Rows that do not agree with their replay: {count}.", style="red")
    if result["rows"] <= result["differences"]["fingerprint"] > 0:
        console.print(
            "All of them were made under other rules: give the run's own --tokenizer, --schedule, "
            "--boundaries and --set."
        )
