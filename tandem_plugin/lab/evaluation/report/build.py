"""A report of everything that lies in a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EvaluationError, TokenizerError
from tandem_plugin.files import InputFiles, write_file
from tandem_plugin.lab.evaluation.comparison import Comparison, check_problems, compare_runs
from tandem_plugin.lab.evaluation.measures import Over
from tandem_plugin.lab.evaluation.report import drift_figures, figures
from tandem_plugin.lab.evaluation.report.facts import how_it_was_made, what_was_run
from tandem_plugin.lab.evaluation.report.figure import ReportFigure, Style, styles
from tandem_plugin.lab.evaluation.report.page import Picture, make_page
from tandem_plugin.lab.evaluation.report.samples import SampleResponse, sample_responses
from tandem_plugin.lab.evaluation.report.training_log import TrainingLog
from tandem_plugin.lab.evaluation.results import (
    KINDS,
    Summary,
    check_comparable,
    find_summaries,
    result_files,
)
from tandem_plugin.lab.evaluation.senior_order import noted_seniors, order_file, ordered_seniors
from tandem_plugin.lab.evaluation.tables import TableOptions, paper_tables
from tandem_plugin.lab.evaluation.verdict import verdicts
from tandem_plugin.spans import TokenBytes

__all__ = ["Report", "build_report"]


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
    on_figure: Callable[[str], None] = lambda name: None,
) -> Report:
    """Write ``index.html``, ``figures/*.png`` and ``data/*.csv`` under ``out``.

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

    def write(path: Path, content: bytes) -> None:
        inputs.check_outputs(path)
        write_file(path, content)

    options = options or TableOptions()
    drawn_as = styles([*seniors, *(log.name for log in logs)], pools or {})
    notes: list[str] = []
    vocabularies = _Vocabularies(notes)
    drawn: list[Picture] = []
    written: list[str] = []
    for figure in _figures(runs, drawn_as, vocabularies, logs, options.top, over):
        on_figure(figure.title)
        png, dark = figure.png(), figure.png(dark=True)
        write(out / "figures" / f"{figure.name}.png", png)
        write(out / "data" / f"{figure.name}.csv", figure.csv().encode("utf-8", "replace"))
        drawn.append(Picture(figure.name, figure.title, figure.caption, png, dark))
        written.append(figure.name)
    comparison = _comparison(runs, seniors, notes, pools or {}, over)
    tables = [] if comparison is None else paper_tables(comparison, options)
    shown = [] if comparison is None else verdicts(comparison, options.k)
    chosen: list[SampleResponse] = []
    for by_senior in runs.values():
        for run in by_senior.values():
            if run.kind in ("solo", "handoff"):
                chosen += sample_responses(run, samples, vocabularies.token_bytes(run))
    page = out / "index.html"
    told = list(dict.fromkeys(notes))
    facts, details = list(what_was_run(runs)), list(how_it_was_made(runs))
    text = make_page(title, shown, facts, details, tables, drawn, chosen, told)
    write(page, text.encode("utf-8", "replace"))
    said = tuple(f"{one.sentence} {one.evidence}" for one in shown)
    return Report(page, tuple(written), len(tables), len(chosen), said, tuple(told))


class _Vocabularies:
    """Tokenizers of the seniors, read where they still lie."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._known: dict[str, Vocabulary | None] = {}

    def of(self, run: Summary) -> Vocabulary | None:
        """The senior's vocabulary, or None, with a note, where it cannot be read."""
        path = str(run.content["senior"].get("path", ""))
        if path not in self._known:
            try:
                if not Path(path).is_dir():
                    raise TokenizerError(f"there is no folder {path!r}")
                self._known[path] = Vocabulary.from_path(path)
            except TokenizerError as error:
                self._known[path] = None
                self._notes.append(
                    f"The tokenizer of {run.senior} could not be read ({error}): its team "
                    "responses are shown without authors, and tokens by their pieces."
                )
        return self._known[path]

    def token_bytes(self, run: Summary) -> TokenBytes | None:
        found = self.of(run)
        return None if found is None else TokenBytes(found)

    def texts(self, run: Summary) -> Sequence[bytes] | None:
        found = self.of(run)
        return None if found is None else found.texts()


def _runs(results: Path, order: Sequence[str]) -> tuple[dict[str, dict[str, Summary]], list[str]]:
    """Runs by label, then by senior, each label's comparable; and all seniors, in order."""
    found: dict[str, dict[str, Summary]] = {}
    for one in find_summaries(results):
        by_senior = found.setdefault(one.label, {})
        if one.senior in by_senior:
            raise EvaluationError(
                f"{str(by_senior[one.senior].folder)!r} and {str(one.folder)!r} are the same run "
                f"of {one.senior!r}: report them apart."
            )
        by_senior[one.senior] = one
    if not found:
        raise EvaluationError(
            f"There is no finished result in {str(results)!r}: run `tandem eval` first."
        )
    known = ordered_seniors(_each(found), noted_seniors(results), order)
    for name in order:
        if name not in known:
            raise EvaluationError(
                f"There is no result of {name!r}: give one of {', '.join(sorted(known))}."
            )
    ordered = {
        label: {name: by_senior[name] for name in known if name in by_senior}
        for label, by_senior in found.items()
    }
    for label, by_senior in ordered.items():
        check_comparable(list(by_senior.values()))
        check_problems(label, list(by_senior.values()))
    return dict(sorted(ordered.items(), key=lambda item: _rank(*item))), known


def _each(runs: Mapping[str, Mapping[str, Summary]]) -> list[Summary]:
    return [run for by_senior in runs.values() for run in by_senior.values()]


def _rank(label: str, runs: Mapping[str, Summary]) -> tuple[int, str]:
    return KINDS.index(next(iter(runs.values())).kind), label


def _figures(
    runs: Mapping[str, Mapping[str, Summary]],
    drawn_as: Mapping[str, Style],
    vocabularies: _Vocabularies,
    logs: Sequence[TrainingLog],
    top: int,
    over: Over,
) -> Iterator[ReportFigure]:
    for label, by_senior in runs.items():
        first = next(iter(by_senior.values()))
        if first.kind in ("solo", "handoff"):
            yield figures.pass_at_k_figure(label, by_senior, drawn_as)
        elif first.kind == "legibility":
            yield figures.legibility_figure(label, by_senior, drawn_as, over)
        else:
            pieces = vocabularies.texts(first)
            yield drift_figures.survival_figure(label, by_senior, drawn_as)
            yield from drift_figures.recovery_figures(label, by_senior, pieces, top)
            yield from drift_figures.token_clouds(label, by_senior, pieces)
    if logs:
        yield figures.training_figure(logs, drawn_as)


def _comparison(
    runs: Mapping[str, Mapping[str, Summary]],
    seniors: Sequence[str],
    notes: list[str],
    pools: Mapping[str, Sequence[str]],
    over: Over,
) -> Comparison | None:
    """As of ``tandem compare``, of pooled seniors and those evaluated most widely; None of one."""
    counted: dict[str, int] = {}
    for by_senior in runs.values():
        for name in by_senior:
            counted[name] = counted.get(name, 0) + 1
    most = max(counted.values())
    pooled = {name for members in pools.values() for name in members}
    chosen = [name for name, count in counted.items() if count == most or name in pooled]
    if len(chosen) < 2:
        chosen = list(counted)
    if len(chosen) < 2:
        notes.append("There are results of one senior alone: tables compare two or more.")
        return None
    chosen_runs = {
        name: {label: found[name] for label, found in runs.items() if name in found}
        for name in seniors
        if name in chosen
    }
    comparison = compare_runs(chosen_runs, pools=pools, over=over)
    notes += comparison.missing
    return comparison
