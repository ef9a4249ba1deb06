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
            help="A rollout file with one JSON object per line, written by a training "
            "run; or a folder of such files, such as one dump per step."
        ),
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run, as for `tandem boundaries`. Default: the "
            "folder tokenizer/ or checkpoint/ next to the file."
        ),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="The schedule of rows that do not record one. Default: word.")
    ] = None,
    boundaries: Annotated[
        str | None, typer.Option(help="The boundary resolver of rows that do not record one.")
    ] = None,
    settings: SettingsOption = None,
    without_seed: Annotated[
        bool,
        typer.Option(
            "--without-seed",
            help="Check traces without seeds, from other implementations: only where "
            "authors change, and whether the shares match the schedule.",
        ),
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="Number of differences to show.")] = 10,
    json: JsonOption = False,
) -> None:
    """Recompute the authorship of every rollout and compare it with the record.

    A row contains response_ids, authorship (zeros and ones), tandem_seed, tandem_fingerprint and,
    if present, its settings in tandem_schedule. A response of several turns also has
    tandem_segments, a list of [seed, start, stop], and tandem_segment_schedules with the schedules
    that individual calls selected. Tokens that two calls could have written with different authors
    are listed in tandem_unknown as [start, stop]: there, authorship is what the segments replay to,
    and these tokens are counted separately. A response that the senior wrote alone has
    "tandem_seed": null. --set applies to rows that do not record their settings. The exit code is 1
    if any row differs or is malformed.

    With --without-seed, a row contains token_ids and tandem_model_mask (or model_mask), as in the
    paper's release and a reproduction of it (their cap of 32 is `--set cap=31` here), or
    response_ids and authorship. Authors may change only where the schedule draws. The senior's
    share of draws, and the share of draws that change the author, are tested against p: traces that
    follow the schedule exactly fail with probability 0.001. The command prints the size of the
    difference that it detects with probability 0.8. The exit code is 1 if the author changes
    elsewhere, a share does not match the schedule, or a row is malformed.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.lab.rollouts.audit import RuleBook
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.rollout_file import rollout_files
    from tandem_plugin.lab.rollouts.tokenizer import find_tokenizer

    files = rollout_files(rollouts)
    options = _options(schedule, boundaries, settings or [])
    chosen = tokenizer or find_tokenizer(rollouts)
    if without_seed:
        _without_seed(files, chosen, options, rollouts, show, json)
    audit = _audit(files, RuleBook(Vocabulary.from_path(chosen), options), show)
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

    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.traces import TraceAudit, read_traces
    from tandem_plugin.rules import TandemRules
    from tandem_plugin.schedules.bernoulli import BernoulliSchedule

    rule = TandemRules(TandemConfig.from_mapping(options), Vocabulary.from_path(tokenizer)).default
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
                f"{name}: {test.observed:.4f}, expected {test.expected:.4f} (p = "
                f"{test.p_value:.2g}; a difference of {test.detectable:.4f} is detected with "
                "probability 0.8)"
            )
        for difference in audit.differences:
            console.print(f"line {difference.line}: {difference.message}", markup=False)
        console.print(
            "Consistent with the schedule." if ok else "Not consistent with the schedule."
        )
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
        console.print("Every row matches its replay.", style="green")
    else:
        count = f"{result['differing_rows']:,}"
        console.print(f"Rows that differ from their replay: {count}.", style="red")
    if result["rows"] <= result["differences"]["fingerprint"] > 0:
        console.print(
            "All of them were made under different rules: pass the run's own --tokenizer, "
            "--schedule, --boundaries and --set."
        )
