"""Several seniors side by side: their order, and the same runs with the same settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem_plugin.errors import EvaluationError, OutputError
from tandem_plugin.files import read_file, system_reason
from tandem_plugin.lab.evaluation.measures import Measure, Measured, Over, measured
from tandem_plugin.lab.evaluation.results import KINDS, Summary, check_comparable, find_summaries
from tandem_plugin.lab.evaluation.significance import RESAMPLES

__all__ = [
    "Comparison",
    "check_problems",
    "compare",
    "note_seniors",
    "noted_seniors",
    "order_file",
    "ordered_seniors",
    "read_seniors",
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
    units: Mapping[str, str] = field(default_factory=dict)
    """What each senior shares with others, such as its start, by its name; empty: not said."""
    known: dict[int, dict[Measure, Measured]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def measured(self, run: Summary) -> dict[Measure, Measured]:
        """All measures of one of the runs, resampled once."""
        if id(run) not in self.known:  # the comparison holds its runs: ids stay theirs
            self.known[id(run)] = measured(run, self.resamples, self.over)
        return self.known[id(run)]

    def of(self, *kinds: str) -> Iterator[tuple[str, Mapping[str, Summary]]]:
        """(label, runs by senior) of these kinds, in the order of tables."""
        for label, runs in self.runs.items():
            if next(iter(runs.values())).kind in kinds:
                yield label, runs


def read_seniors(folders: Sequence[Path]) -> dict[str, dict[str, Summary]]:
    """The results of several seniors, one folder each: by senior, in their order, and by label.

    Raises :class:`EvaluationError` for folders without results or with those of several seniors,
    and for one senior given twice.
    """
    by_senior: dict[str, dict[str, Summary]] = {}
    for folder in folders:
        runs = list(find_summaries(folder))
        names = sorted({one.senior for one in runs})
        if len(names) != 1:
            listed = ": " + ", ".join(names) if names else ""
            raise EvaluationError("TP828", folder=folder, count=len(names), listed=listed)
        if names[0] in by_senior:
            raise EvaluationError("TP829", name=names[0])
        by_senior[names[0]] = {one.label: one for one in runs}
    return by_senior


def compare(
    by_senior: Mapping[str, Mapping[str, Summary]],
    despite: Sequence[str] = (),
    resamples: int = RESAMPLES,
    pools: Mapping[str, Sequence[str]] | None = None,
    over: Over = "problems",
    units: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Runs of several seniors: by senior, in their order, and by label.

    despite: settings that may differ, by their dotted names. pools: seniors that stand for one
    method, trained with several seeds, by the method's name, which takes the place of its first
    one: each problem's number is the mean over them. over: as of :func:`measured`. units: seniors
    that share a random effect, such as the model that they started from, by its name. Raises
    :class:`EvaluationError` for results with other settings, fewer than two seniors, one in two
    pools or in two units, names that are not there, and pools that are only partly in units.
    """
    missing: list[str] = []
    unit_of = _group_of("unit", units or {}, by_senior)
    for method, members in (pools or {}).items():
        without = [name for name in members if name not in unit_of]
        if unit_of and 0 < len(without) < len(members):
            raise EvaluationError("TP916", method=method, names=_and(without))
    if pools:
        by_senior = _pooled(by_senior, pools, despite, missing)
    if len(by_senior) < 2:
        raise EvaluationError("TP830", seniors=", ".join(by_senior) or "none")
    joined = _joined(by_senior, despite, missing)
    return replace(joined, resamples=resamples, over=over, units=unit_of)


def _group_of(
    what: str, groups: Mapping[str, Sequence[str]], known: Mapping[str, object]
) -> dict[str, str]:
    """The group of each senior that is in one; what: ``pool`` or ``unit``."""
    found: dict[str, str] = {}
    for group, members in groups.items():
        for name in members:
            if name not in known:
                raise EvaluationError(
                    "TP831", what=what, group=group, name=name, known=", ".join(known)
                )
            if name in found:
                raise EvaluationError("TP832", what=what, name=name, first=found[name], group=group)
            found[name] = group
    return found


def _pooled(
    by_senior: Mapping[str, Mapping[str, Summary]],
    pools: Mapping[str, Sequence[str]],
    despite: Sequence[str],
    missing: list[str],
) -> dict[str, dict[str, Summary]]:
    """The seniors with pools in place of their members; ``missing`` is told what members lack."""
    method_of = _group_of("pool", pools, by_senior)
    for method in pools:
        if method in by_senior and method not in method_of:
            raise EvaluationError("TP833", method=method)
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
                f"No {label} for {method}: its pool includes {_and(lacking)}, which lacks such a "
                "result."
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
            missing.append(f"No table of {label}: there is no such result for {_and(lacking)}.")
            continue
        side_by_side = {name: found[label] for name, found in by_senior.items()}
        check_comparable(list(side_by_side.values()), despite)
        check_problems(label, list(side_by_side.values()))
        runs[label] = side_by_side
        missing += _differing_versions(label, side_by_side)
    if not runs:
        raise EvaluationError("TP834", seniors=_and(list(by_senior)), missing=" ".join(missing))
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
            raise EvaluationError("TP835", folder=first.folder, other=other.folder, label=label)


def _differing_versions(label: str, found: Mapping[str, Summary]) -> Iterator[str]:
    known = [dict(one.content.get("versions") or {}) for one in found.values()]
    for name in sorted({name for one in known for name in one}):
        seen = {str(one.get(name)) for one in known}
        if len(seen) > 1:
            yield f"Made with different versions of {name}: {', '.join(sorted(seen))}."


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)


def order_file(out: Path) -> Path:
    """Where the order is noted in which the seniors of a folder of results were given."""
    return out / "seniors.txt"


def note_seniors(out: Path, names: Sequence[str]) -> None:
    """Add the seniors that are not noted yet, in their order.

    One name a line, only ever appended to: evaluations of several seniors may run side by side.
    Raises :class:`OutputError` where the file cannot be written.
    """
    known = noted_seniors(out)
    new = [f"{name}\n" for name in dict.fromkeys(names) if name not in known]
    if not new:
        return
    file = order_file(out)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab", buffering=0) as lines:
            lines.write("".join(new).encode())
    except OSError as error:
        raise OutputError("TP900", file=file, reason=system_reason(error)) from error


def noted_seniors(out: Path) -> list[str]:
    """The seniors of a folder of results, in the order in which they were first given."""
    file = order_file(out)
    if not os.path.lexists(file):  # a link that leads nowhere is no missing order
        return []
    try:
        return list(dict.fromkeys(read_file(file).decode("utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise EvaluationError("TP901", file=file, error=error) from error


def ordered_seniors(
    runs: Iterable[Summary], noted: Sequence[str], order: Sequence[str]
) -> list[str]:
    """Every senior of ``runs``, in the order of tables: the last is claimed to be the best.

    The junior's own model comes first, since everything is claimed relative to it; then seniors
    that nobody ordered, by name; then those of ``noted``; then those of ``order``, which says the
    order by itself where it names all.
    """
    runs = list(runs)
    juniors = {
        role[key]
        for run in runs
        if (role := run.content.get("junior"))
        for key in ("name", "fingerprint")
        if role.get(key)
    }
    own = {
        run.senior
        for run in runs
        if run.senior in juniors or run.content["senior"].get("fingerprint") in juniors
    }

    def rank(name: str) -> tuple[int, int, str]:
        if name in order:
            return 3, list(order).index(name), name
        if name in own:
            return 0, 0, name
        return (2, list(noted).index(name), name) if name in noted else (1, 0, name)

    return sorted({run.senior for run in runs}, key=rank)
