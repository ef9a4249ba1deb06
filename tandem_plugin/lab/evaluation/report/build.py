"""A report of everything that lies in a folder of results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EvaluationError, TokenizerError
from tandem_plugin.files import InputFiles, write_file
from tandem_plugin.lab.evaluation.comparison import (
    Comparison,
    check_problems,
    compare_runs,
    noted_seniors,
    order_file,
    ordered_seniors,
)
from tandem_plugin.lab.evaluation.generation import check_response
from tandem_plugin.lab.evaluation.measures import Over
from tandem_plugin.lab.evaluation.report.figures import (
    Runs,
    accuracy_figure,
    drift_figure,
    senior_figure,
    styles,
)
from tandem_plugin.lab.evaluation.report.page import SampleResponse, make_page
from tandem_plugin.lab.evaluation.results import (
    KINDS,
    Summary,
    check_comparable,
    find_summaries,
    result_files,
)
from tandem_plugin.lab.evaluation.tables import TableOptions, paper_tables
from tandem_plugin.lab.evaluation.training_log import TrainingLog
from tandem_plugin.lab.evaluation.verdict import verdicts
from tandem_plugin.lab.rollouts.rollout_file import placed_rows
from tandem_plugin.spans import JUNIOR, SENIOR, TokenBytes, authored_text

__all__ = ["Report", "build_report"]

_AUTHORS = {SENIOR: "senior", JUNIOR: "junior"}


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    figures: tuple[str, ...]
    tables: int
    samples: int
    verdict: tuple[str, ...]
    notes: tuple[str, ...]


def build_report(
    results: Path,
    out: Path,
    *,
    title: str,
    order: Sequence[str] = (),
    logs: Sequence[TrainingLog] = (),
    samples: int = 2,
    options: TableOptions | None = None,
    pools: Mapping[str, Sequence[str]] | None = None,
    over: Over = "problems",
) -> Report:
    """Write ``index.html`` and ``figures/*.png`` under ``out``.

    order: seniors in the order of tables and legends; the first that drifted is the baseline of
    recovery, the last is tested against the others. Those not named come first, as
    :func:`ordered_seniors` has them: the junior's own model, then in the order in which they were
    evaluated. options, pools, over: as of :func:`paper_tables` and :func:`compare`; figures show
    every run by itself, pooled ones in one colour. No file that is read is written over. Raises
    :class:`EvaluationError` for results that cannot be compared, or where there are none.
    """
    runs, seniors = _runs(results, order)
    inputs = InputFiles(
        results=[file for run in _each(runs) for file in result_files(run.folder)],
        order=[order_file(results)],
        log=[log.path for log in logs],
    )

    options = options or TableOptions()
    drawn = styles([*seniors, *(log.name for log in logs)], pools or {})
    figures = (
        accuracy_figure(logs, drawn),
        senior_figure(runs, drawn, options.k, over),
        drift_figure(runs, drawn),
    )
    pictures = [figure for figure in figures if figure is not None]
    notes: list[str] = []
    comparison = _comparison(runs, seniors, notes, pools or {}, over)
    tables = [] if comparison is None else paper_tables(comparison, options)
    shown = [] if comparison is None else verdicts(comparison, options.k)
    responses = list(_sample_responses(_each(runs), samples, notes))
    notes = list(dict.fromkeys(notes))
    page = make_page(title, shown, runs, tables, pictures, responses, notes)
    files = {out / "index.html": page.encode("utf-8", "replace")}
    files |= {out / "figures" / f"{one.name}.png": one.png for one in pictures}
    inputs.check_outputs(*files)
    for path, content in files.items():
        write_file(path, content)
    return Report(
        out / "index.html",
        tuple(picture.name for picture in pictures),
        len(tables),
        len(responses),
        tuple(f"{one.sentence} {one.evidence}" for one in shown),
        tuple(notes),
    )


def _runs(results: Path, order: Sequence[str]) -> tuple[Runs, list[str]]:
    """Runs by label, then by senior, each label's comparable; and all seniors, in order."""
    found: dict[str, dict[str, Summary]] = {}
    for one in find_summaries(results):
        by_senior = found.setdefault(one.label, {})
        if one.senior in by_senior:
            raise EvaluationError(
                "TP880", folder=by_senior[one.senior].folder, other=one.folder, senior=one.senior
            )
        by_senior[one.senior] = one
    if not found:
        raise EvaluationError("TP881", results=results)
    known = ordered_seniors(_each(found), noted_seniors(results), order)
    for name in order:
        if name not in known:
            raise EvaluationError("TP882", name=name, known=", ".join(sorted(known)))
    ordered = {
        label: {name: by_senior[name] for name in known if name in by_senior}
        for label, by_senior in found.items()
    }
    for label, by_senior in ordered.items():
        check_comparable(list(by_senior.values()))
        check_problems(label, list(by_senior.values()))
    return dict(sorted(ordered.items(), key=lambda item: _rank(*item))), known


def _each(runs: Runs) -> list[Summary]:
    return [run for by_senior in runs.values() for run in by_senior.values()]


def _rank(label: str, runs: Mapping[str, Summary]) -> tuple[int, str]:
    return KINDS.index(next(iter(runs.values())).kind), label


def _comparison(
    runs: Runs,
    seniors: Sequence[str],
    notes: list[str],
    pools: Mapping[str, Sequence[str]],
    over: Over,
) -> Comparison | None:
    """As of ``tandem compare``, of pooled seniors and those evaluated most widely; None of one."""
    counts = {name: sum(name in found for found in runs.values()) for name in seniors}
    pooled = {name for members in pools.values() for name in members}
    most = max(counts.values())
    chosen = [name for name in seniors if counts[name] == most or name in pooled]
    if len(chosen) < 2:
        chosen = list(seniors)
    if len(chosen) < 2:
        notes.append("There are results of one senior alone: tables compare two or more.")
        return None
    by_senior = {
        name: {label: found[name] for label, found in runs.items() if name in found}
        for name in chosen
    }
    comparison = compare_runs(by_senior, pools=pools, over=over)
    notes += comparison.missing
    return comparison


def _sample_responses(
    runs: Sequence[Summary], count: int, notes: list[str]
) -> Iterator[SampleResponse]:
    """The first response to each of the first ``count`` problems of each benchmark of each run."""
    tokenizers: dict[str, TokenBytes | None] = {}
    for run in runs:
        if run.kind not in ("solo", "handoff"):
            continue
        path = str(run.content["senior"].get("path", ""))
        if path not in tokenizers:
            tokenizers[path] = _token_bytes(run.senior, path, notes)
        for name in run.problems:
            grades = _first_rows(run.folder / f"{name}.grades.jsonl", count, _check_grade)
            rows = _first_rows(run.folder / f"{name}.jsonl", count, check_response)
            for problem, row in sorted(rows.items()):
                yield SampleResponse(
                    run.senior,
                    run.label,
                    name,
                    problem,
                    _prompt_text(row.get("prompt")),
                    grades[problem]["outcome"] if problem in grades else "not graded",
                    tuple(_parts(row, tokenizers[path])),
                )


def _token_bytes(senior: str, path: str, notes: list[str]) -> TokenBytes | None:
    """The tokenizer that lies there; None, with a note, where it cannot be read."""
    try:
        if not Path(path).is_dir():
            raise TokenizerError("TP879", path=path)
        return TokenBytes(Vocabulary.from_path(path))
    except TokenizerError as error:
        notes.append(
            f"The tokenizer of {senior} could not be read ({error}): its team responses are shown "
            "without authors."
        )
        return None


def _first_rows(
    path: Path, count: int, check: Callable[[Mapping[str, Any]], None]
) -> dict[int, dict[str, Any]]:
    """The rows of sample 0 of the first problems, by problem; none where there is no file."""
    found: dict[int, dict[str, Any]] = {}
    if not count or not os.path.isfile(path):
        return found
    try:
        for problem, sample, row in placed_rows(path):
            if sample == 0 and problem < count and problem not in found:
                check(row)
                found[problem] = row
                if len(found) == count:
                    break
    except (OSError, ValueError) as error:
        raise EvaluationError("TP884", path=path, error=error) from error
    return found


def _check_grade(row: Mapping[str, Any]) -> None:
    if not isinstance(row.get("outcome"), str):
        raise ValueError("a grade has no outcome")


def _parts(row: Mapping[str, Any], token_bytes: TokenBytes | None) -> Iterator[tuple[str, str]]:
    """(author, text) of each piece of a response."""
    authors = row.get("authorship")
    if token_bytes is None:
        yield ("senior" if authors is None else ""), str(row["response"])
        return
    ids = row["response_ids"]
    authored = authored_text(ids, [SENIOR] * len(ids) if authors is None else authors, token_bytes)
    for piece in authored.pieces:
        author, _ = authored.spans[piece.first]
        yield (_AUTHORS[author] if piece.first == piece.last else "shared"), piece.text


def _prompt_text(prompt: object) -> str:
    if isinstance(prompt, list):
        turns = [turn.get("content", "") if isinstance(turn, dict) else turn for turn in prompt]
        return "\n\n".join(map(str, turns))
    return str(prompt or "")
