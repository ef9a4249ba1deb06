"""``tandem replay``: does recorded authorship agree with its own seed and token ids?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.options import (
    RESOLVERS,
    SCHEDULES,
    complete_boundaries,
    complete_schedule,
    tandem_settings,
)
from tandem_plugin.terminal.arguments import SettingsOption, rows_of_stdin
from tandem_plugin.terminal.output import JsonOption, echo, print_fields, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.rollouts.audit import RuleBook
    from tandem_plugin.rules import Rule


def replay(
    ctx: typer.Context,
    rollouts: Annotated[
        Path,
        typer.Argument(
            callback=rows_of_stdin,
            help="A rollout file with one JSON object per line, written by `tandem rollout` or a "
            "training run, or - for standard input; or a folder of such files, such as one dump "
            "per step.",
        ),
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of the run: its folder, file or Hub name. Default: the recorded "
            "one, or the folder tokenizer/, checkpoint/ or senior/ next to the file.",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_schedule,
            help=f"The schedule of rows that do not record one: {SCHEDULES}, or a plugin's. "
            "Default: word.",
        ),
    ] = None,
    boundaries: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_boundaries,
            help="The boundary resolver of rows that do not record one: "
            f"{RESOLVERS}, or a plugin's.",
        ),
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

    A row contains response_ids, authorship (zeros and ones), tandem_seed and tandem_fingerprint; a
    response that the senior wrote alone has "tandem_seed": null. Its settings are in
    tandem_schedule; --schedule, --boundaries and --set apply to rows without. Tokens that two calls
    could have written with different authors (tandem_unknown) are counted separately, and so are
    rows of nothing else. Other fields are not recomputed: a row with row_sha256, as `tandem
    rollout` writes it, is compared with that digest. The exit code is 1 if any row differs, has a
    token id that the model lacks or is malformed, or if the authors of all rows are unknown.

    With --without-seed, a row contains token_ids and tandem_model_mask (or model_mask), as in the
    paper's release and a reproduction of it (their cap of 32 is `--set cap=31` here), or
    response_ids and authorship. Authors may change only where the schedule draws. The senior's
    share of draws, and the share of draws that change the author, are tested against p: traces that
    follow the schedule exactly fail with probability 0.001.
    """
    from tandem_plugin.boundaries import Vocabulary
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.lab.rollouts.audit import RuleBook, token_id_count
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.rollout_file import find_tokenizer, rollout_files
    from tandem_plugin.rules import TandemRules

    chosen_schedule = schedule or TandemConfig.model_fields["schedule"].default
    options = {
        name: value
        for name, value in (("schedule", schedule), ("boundaries", boundaries))
        if value is not None
    } | tandem_settings(ctx, settings or (), [chosen_schedule], ())
    TandemConfig.from_mapping(options)
    files = rollout_files(rollouts)
    chosen = tokenizer or find_tokenizer(rollouts)
    vocabulary = Vocabulary.from_path(chosen)
    token_ids = token_id_count(chosen, vocabulary)
    if without_seed:
        rule = TandemRules(TandemConfig.from_mapping(options), vocabulary).default
        result = _of_traces(files, rule, show, token_ids)
    else:
        rules = RuleBook(vocabulary, options)
        result = _of_rollouts(files, rules, show, token_ids)
        rules.check_options()
    kinds = ("rows", "unknown_rows", "solo_rows", "differing_rows")
    if not any(result.get(kind) for kind in kinds):
        raise RolloutError("rollouts-empty", rollouts=rollouts)
    result = {"ok": result.pop("ok"), "rollouts": str(rollouts), "tokenizer": chosen, **result}
    if json:
        print_json(result)
    else:
        _print(result)
    raise typer.Exit(0 if result["ok"] else 1)


def _of_traces(files: Sequence[Path], rule: Rule, keep: int, token_ids: int) -> dict[str, Any]:
    """The result for traces that have no seed."""
    from tandem_plugin.lab.rollouts.rollout import RolloutError
    from tandem_plugin.lab.rollouts.traces import TraceAudit, read_traces
    from tandem_plugin.schedules.alone import share_alone
    from tandem_plugin.schedules.bernoulli import BernoulliSchedule

    if not isinstance(rule.schedule, BernoulliSchedule) or share_alone(rule.schedule):
        raise RolloutError("trace-seed-missing", name=rule.schedule.name)
    audit = TraceAudit(rule.schedule, rule.boundaries, keep, token_ids)
    for file in files:
        audit.add(read_traces(file))
    tests = audit.tests()
    return {
        "ok": not audit.differing_rows and all(test.is_as_expected for test in tests.values()),
        "rows": audit.rows,
        "tokens": audit.tokens,
        "senior_share": audit.senior_tokens / audit.tokens if audit.tokens else None,
        "draws": audit.draws,
        "wrong_changes": audit.wrong_changes,
        "differing_rows": audit.differing_rows,
        "tests": {
            name: asdict(test) | {"p_value": test.p_value, "ok": test.is_as_expected}
            for name, test in tests.items()
        },
        "shown": [asdict(difference) for difference in audit.differences],
    }


def _of_rollouts(
    files: Sequence[Path], rules: RuleBook, keep: int, token_ids: int
) -> dict[str, Any]:
    """The result of comparing every row, with a progress bar on a terminal's stderr."""
    from tandem_plugin.lab.rollouts.audit import Audit
    from tandem_plugin.lab.rollouts.rollout import read_rollouts
    from tandem_plugin.progress import ShownProgress

    audit = Audit(rules, keep, token_ids)
    with ShownProgress() as progress:
        task = progress.add_task("replay", total=sum(file.stat().st_size for file in files))
        for file in files:
            audit.file = file.name if len(files) > 1 else None
            audit.add(read_rollouts(file, lambda count: progress.advance(task, count)))
    kinds = ("authorship", "length", "fingerprint", "vocabulary", "malformed")
    checked_rows = audit.rows + audit.solo_rows
    return {
        "ok": not audit.differing_rows and (checked_rows > 0 or not audit.unknown_rows),
        "rows": audit.rows,
        "unknown_rows": audit.unknown_rows,
        "solo_rows": audit.solo_rows,
        "tokens": audit.tokens,
        "unknown_tokens": audit.unknown_tokens,
        "senior_share": audit.senior_tokens / audit.tokens if audit.tokens else None,
        "spans_per_response": audit.spans / audit.rows if audit.rows else None,
        "handoffs_per_response": audit.handoffs / audit.rows if audit.rows else None,
        "differing_rows": audit.differing_rows,
        "differences": {kind: audit.counts[kind] for kind in kinds},
        "shown": [asdict(difference) for difference in audit.differences],
    }


def _print(result: Mapping[str, Any]) -> None:
    fields = {k: v for k, v in result.items() if k not in ("ok", "rollouts", "tests", "shown")}
    print_fields({name.replace("_", " "): _text(value) for name, value in fields.items()})
    for name, test in result.get("tests", {}).items():
        echo(
            f"{name}: {test['observed']:.4f}, expected {test['expected']:.4f} "
            f"(p = {test['p_value']:.2g})"
        )
    for difference in result["shown"]:
        where = f"{difference['file']}, " if difference["file"] else ""
        echo(f"{where}line {difference['line']}, {difference['kind']}: {difference['message']}")
    if "tests" in result:
        echo(
            "Consistent with the schedule." if result["ok"] else "Not consistent with the schedule."
        )
    elif unknown := not result["differing_rows"] and result["unknown_rows"]:
        echo(f"No row differs, but the authors of {unknown:,} are all unknown: these do not count.")
    elif result["ok"]:
        echo("The authorship of every row matches its replay.")
    else:
        echo(f"Rows that differ from their replay: {result['differing_rows']:,}.")
        if result["rows"] <= result["differences"]["fingerprint"] > 0:
            echo(
                "All of them were made under different rules: pass the run's own --tokenizer, "
                "--schedule, --boundaries and --set."
            )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(count)}" for name, count in value.items())
    match value:
        case None:
            return "none"
        case float():
            return f"{value:.3f}"
        case int():
            return f"{value:,}"
    return str(value)
