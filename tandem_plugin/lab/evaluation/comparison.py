"""Several seniors side by side: the same runs, with the same settings, problem by problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.bootstrap import RESAMPLES
from tandem_plugin.lab.evaluation.measures import Measure, Measured, Over, measured
from tandem_plugin.lab.evaluation.results import KINDS, Summary, check_comparable, find_summaries

__all__ = [
    "Comparison",
    "check_problems",
    "compare",
    "compare_runs",
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of several seniors that may be compared."""

    seniors: tuple[str, ...]
    runs: Mapping[str, Mapping[str, Summary]]
    """By label (kind, schedule and junior), then by senior; only what all of them have."""
    missing: tuple[str, ...]
    """Sentences about runs that some of the seniors lack, and what else a reader should know."""
    resamples: int = RESAMPLES
    over: Over = "problems"
    """What a benchmark's legibility is the mean over."""
    known: dict[int, dict[Measure, Measured]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def measured(self, run: Summary) -> dict[Measure, Measured]:
        """All measures of one of the runs, resampled once."""
        if id(run) not in self.known:  # the comparison holds its runs: ids stay theirs
            self.known[id(run)] = measured(run, self.resamples, self.over)
        return self.known[id(run)]

    def of_kind(self, kind: str) -> Iterator[tuple[str, Mapping[str, Summary]]]:
        """(label, runs by senior) of one kind."""
        for label, found in self.runs.items():
            if next(iter(found.values())).kind == kind:
                yield label, found


def compare(
    folders: Sequence[Path],
    despite: Sequence[str] = (),
    resamples: int = RESAMPLES,
    pools: Mapping[str, Sequence[str]] | None = None,
    over: Over = "problems",
) -> Comparison:
    """The results of several seniors, one folder each.

    despite: settings that may differ, by their dotted names. pools: seniors that stand for one
    method, trained with several seeds, by the method's name, which takes the place of its first
    one: each problem's number is the mean over them. over: as of :func:`measured`. Raises
    :class:`EvaluationError` for folders without results, results with other settings, one senior
    given or pooled twice, and pools of seniors that are not there.
    """
    by_senior: dict[str, dict[str, Summary]] = {}
    for folder in folders:
        found = list(find_summaries(folder))
        names = sorted({one.senior for one in found})
        if len(names) != 1:
            raise EvaluationError(
                f"{str(folder)!r} holds results of {len(names)} seniors"
                f"{': ' + ', '.join(names) if names else ''}. Give the folder of one, as "
                "`tandem eval` writes it under its --out."
            )
        if names[0] in by_senior:
            raise EvaluationError(
                f"Both {names[0]!r} were evaluated under one name: evaluate one of them under "
                "another."
            )
        by_senior[names[0]] = {one.label: one for one in found}
    return compare_runs(by_senior, despite, resamples, pools, over)


def compare_runs(
    by_senior: Mapping[str, Mapping[str, Summary]],
    despite: Sequence[str] = (),
    resamples: int = RESAMPLES,
    pools: Mapping[str, Sequence[str]] | None = None,
    over: Over = "problems",
) -> Comparison:
    """The same of runs that were read already: by senior, in their order, and by label."""
    missing: list[str] = []
    if pools:
        by_senior = _pooled(by_senior, pools, despite, missing)
    if len(by_senior) < 2:
        raise EvaluationError(
            "Comparing takes two seniors at least, and the results are of "
            f"{', '.join(by_senior) or 'none'}: run `tandem eval` for another one with the same "
            "--out, or give its folder as well."
        )
    return replace(_joined(by_senior, despite, missing), resamples=resamples, over=over)


def _pooled(
    by_senior: Mapping[str, Mapping[str, Summary]],
    pools: Mapping[str, Sequence[str]],
    despite: Sequence[str],
    missing: list[str],
) -> dict[str, dict[str, Summary]]:
    """The seniors with pools in place of their members; ``missing`` is told what members lack."""
    method_of: dict[str, str] = {}
    for method, members in pools.items():
        for name in members:
            if name not in by_senior:
                raise EvaluationError(
                    f"The pool {method} names {name!r}, which is none of the results. Give some "
                    f"of: {', '.join(by_senior)}."
                )
            if name in method_of:
                raise EvaluationError(
                    f"{name!r} is pooled twice: leave it in {method_of[name]} or in {method}."
                )
            method_of[name] = method
    for method in pools:
        if method in by_senior and method not in method_of:
            raise EvaluationError(
                f"The pool {method} has the name of another result: give it one of its own."
            )
    joined: dict[str, dict[str, Summary]] = {}
    for name, found in by_senior.items():
        if name not in method_of:
            joined[name] = dict(found)
        elif method_of[name] not in joined:
            method = method_of[name]
            runs = {one: by_senior[one] for one in pools[method]}
            joined[method] = dict(_pool(method, runs, despite, missing))
    return joined


def _pool(
    method: str,
    members: Mapping[str, Mapping[str, Summary]],
    despite: Sequence[str],
    missing: list[str],
) -> Iterator[tuple[str, Summary]]:
    for label in dict.fromkeys(label for found in members.values() for label in found):
        lacking = [name for name, found in members.items() if label not in found]
        if lacking:
            missing.append(
                f"No {label} of {method}: there is no such result of {_and(lacking)}, one of those "
                "that it pools."
            )
            continue
        runs = tuple(found[label] for found in members.values())
        check_comparable(runs, despite)
        check_problems(label, runs)
        missing += _differing_versions(label, {run.senior: run for run in runs})
        yield label, replace(runs[0], senior=method, repeats=runs)


def _joined(
    by_senior: Mapping[str, Mapping[str, Summary]],
    despite: Sequence[str],
    missing: list[str],
) -> Comparison:
    labels = sorted(
        {label: one.kind for found in by_senior.values() for label, one in found.items()}.items(),
        key=lambda item: (KINDS.index(item[1]), item[0]),
    )
    runs: dict[str, dict[str, Summary]] = {}
    for label, _ in labels:
        lacking = [name for name, found in by_senior.items() if label not in found]
        if lacking:
            missing.append(f"No table of {label}: there is no such result of {_and(lacking)}.")
            continue
        side_by_side = {name: found[label] for name, found in by_senior.items()}
        check_comparable(list(side_by_side.values()), despite)
        check_problems(label, list(side_by_side.values()))
        runs[label] = side_by_side
        missing += _differing_versions(label, side_by_side)
    if not runs:
        raise EvaluationError(
            f"The seniors {_and(list(by_senior))} have no result in common: " + " ".join(missing)
        )
    return Comparison(tuple(by_senior), runs, tuple(dict.fromkeys(missing)))


def check_problems(label: str, summaries: Sequence[Summary]) -> None:
    """Raise :class:`EvaluationError` unless all are about the same problems of each benchmark."""
    first = summaries[0]
    for other in summaries[1:]:
        same = first.problems.keys() == other.problems.keys() and all(
            [row["problem"] for row in rows] == [row["problem"] for row in other.problems[name]]
            for name, rows in first.problems.items()
        )
        if not same:
            raise EvaluationError(
                f"{str(first.folder)!r} and {str(other.folder)!r} are not about the same problems: "
                f"{label} cannot be compared problem by problem. Evaluate both on one benchmark "
                "file."
            )


def _differing_versions(label: str, found: Mapping[str, Summary]) -> Iterator[str]:
    known = [dict(one.content.get("versions") or {}) for one in found.values()]
    for name in sorted({name for one in known for name in one}):
        seen = {str(one.get(name)) for one in known}
        if len(seen) > 1:
            yield f"Made with different versions of {name}: {', '.join(sorted(seen))}."


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
