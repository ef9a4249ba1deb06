"""Several seniors side by side: their order, and their runs with equal settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.measures import Over
from tandem_plugin.lab.evaluation.results import KINDS, Summary, check_comparable, find_summaries

BySenior: TypeAlias = Mapping[str, Mapping[str, Summary]]
"""Runs by senior, then by label."""

Groups: TypeAlias = Mapping[str, Sequence[str]]
"""The seniors of each pool or unit, by its name."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparable runs of several seniors."""

    seniors: tuple[str, ...]
    runs: Mapping[str, Mapping[str, Summary]]
    """By label (kind, schedule and junior), then by senior; only labels that all of them have."""
    notes: tuple[str, ...]
    """Notes for the reader, such as runs that some of the seniors lack."""
    over: Over = "problems"
    """Whether a benchmark's legibility is the mean over problems, positions or responses."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The unit of each senior, such as its starting model, by senior; empty if not given."""

    def of(self, *kinds: str) -> Iterator[tuple[str, Mapping[str, Summary]]]:
        """(label, runs by senior) of these kinds, in the order of tables."""
        for label, runs in self.runs.items():
            if next(iter(runs.values())).kind in kinds:
                yield label, runs


def handover_of(run: Summary) -> tuple[str, int] | None:
    """(who began, tokens before the handover) of a run with one handover at a place in tokens."""
    rule = run.settings.get("schedule") or {}
    first, after = rule.get("first"), rule.get("after")
    if rule.get("schedule") != "handover" or first not in ("senior", "junior"):
        return None
    if type(after) is not int or any(rule.get(name) for name in ("end", "steps", "alone")):
        return None
    return first, after


def of_handovers(
    comparison: Comparison, kind: str = "handoff"
) -> dict[tuple[str, str], dict[int, str]]:
    """The labels of runs with one handover, by place: of each junior, by who began.

    A place is the number of tokens that the senior or the junior wrote first. kind: of the runs.
    """
    labels: dict[tuple[str, str], dict[int, str]] = {}
    for label, runs in comparison.of(kind):
        run = next(iter(runs.values()))
        if (place := handover_of(run)) is not None:
            first, after = place
            labels.setdefault((run.junior or "", first), {})[after] = label
    return {key: dict(sorted(labels[key].items())) for key in sorted(labels, key=_continued_first)}


def _continued_first(key: tuple[str, str]) -> tuple[str, bool]:
    junior, first = key
    return junior, first == "junior"


def read_seniors(folders: Sequence[Path]) -> BySenior:
    """The results in some folders: by senior, in the folders' order, and by label.

    Raises :class:`EvaluationError` for a folder without results, and for a run given twice.
    """
    by_senior: dict[str, dict[str, Summary]] = {}
    for folder in folders:
        runs = list(find_summaries(folder))
        if not runs:
            raise EvaluationError("results-unfinished", results=folder)
        for run in runs:
            by_label = by_senior.setdefault(run.senior, {})
            if run.label in by_label:
                first = by_label[run.label].folder
                raise EvaluationError(
                    "compare-same-run", folder=first, other=run.folder, senior=run.senior
                )
            by_label[run.label] = run
    return by_senior


def runs_by_label(by_senior: BySenior) -> dict[str, dict[str, Summary]]:
    """The runs of each label by senior, in the order of tables."""
    kinds = {label: run.kind for runs in by_senior.values() for label, run in runs.items()}
    labels = sorted(kinds, key=lambda label: (KINDS.index(kinds[label]), label))
    return {
        label: {name: runs[label] for name, runs in by_senior.items() if label in runs}
        for label in labels
    }


def compare(
    by_senior: BySenior,
    despite: Sequence[str] = (),
    pools: Groups | None = None,
    over: Over = "problems",
    units: Groups | None = None,
) -> Comparison:
    """Runs of several seniors: by senior, in their order, and by label.

    despite: settings that may differ, by their dotted names. pools: the seniors of one method
    trained with several seeds, by the method's name, which takes the position of its first senior;
    each problem's number is the mean over them. over: see :func:`measured`. units: seniors that
    share a random effect, such as the model that they started from, by its name. Raises
    :class:`EvaluationError` for results with different settings, fewer than two seniors, a senior
    in two pools or units, unknown names, and pools that are only partly in units.
    """
    notes: list[str] = []
    pools, units = pools or {}, units or {}
    unit_of = _group_of("unit", units, by_senior)
    for method, members in pools.items():
        without = [name for name in members if name not in unit_of]
        if unit_of and 0 < len(without) < len(members):
            raise EvaluationError(
                "compare-unit-missing", method=method, names=" and ".join(without)
            )
    by_senior = _pooled(by_senior, pools, despite, notes)
    if len(by_senior) < 2:
        raise EvaluationError("compare-too-few-seniors", seniors=", ".join(by_senior) or "none")
    lack = "No table of {label}: there is no such result for {names}."
    runs = _common_runs(by_senior, despite, notes, lack)
    if not runs:
        seniors = " and ".join(by_senior)
        raise EvaluationError("compare-no-common-results", seniors=seniors, missing=" ".join(notes))
    noted = tuple(dict.fromkeys(notes))
    return Comparison(tuple(by_senior), runs, noted, over, unit_of)


def _group_of(kind: str, groups: Groups, by_senior: BySenior) -> dict[str, str]:
    """The group of each grouped senior; what: ``pool`` or ``unit``."""
    group_of: dict[str, str] = {}
    for group, members in groups.items():
        for name in members:
            if name not in by_senior:
                raise EvaluationError(
                    "compare-name-unknown",
                    what=kind,
                    group=group,
                    name=name,
                    known=", ".join(by_senior),
                )
            if name in group_of:
                raise EvaluationError(
                    "compare-name-in-two", what=kind, name=name, first=group_of[name], group=group
                )
            group_of[name] = group
    return group_of


def _pooled(
    by_senior: BySenior, pools: Groups, despite: Sequence[str], notes: list[str]
) -> dict[str, Mapping[str, Summary]]:
    """The seniors, with pools in place of their members."""
    method_of = _group_of("pool", pools, by_senior)
    for method in pools:
        if method in by_senior and method not in method_of:
            raise EvaluationError("compare-pool-name-taken", method=method)
    joined: dict[str, Mapping[str, Summary]] = {}
    for name, by_label in by_senior.items():
        method = method_of.get(name, name)
        if name not in method_of:
            joined[method] = by_label
        elif method not in joined:
            members = {member: by_senior[member] for member in pools[method]}
            lack = f"No {{label}} for {method}: its pool includes {{names}}, which lacks such a "
            runs = _common_runs(members, despite, notes, f"{lack}result.")
            repeats = {label: tuple(same.values()) for label, same in runs.items()}
            joined[method] = {
                label: replace(same[0], senior=method, repeats=same)
                for label, same in repeats.items()
            }
    return joined


def _common_runs(
    by_senior: BySenior, despite: Sequence[str], notes: list[str], lack: str
) -> dict[str, dict[str, Summary]]:
    """The runs with equal settings that all seniors have, by label.

    notes: receives ``lack`` for each other label, and different versions.
    """
    common: dict[str, dict[str, Summary]] = {}
    for label, runs in runs_by_label(by_senior).items():
        lacking = [name for name in by_senior if name not in runs]
        if lacking:
            notes.append(lack.format(label=label, names=" and ".join(lacking)))
            continue
        check_comparable(list(runs.values()), despite)
        notes += _differing_versions(runs.values())
        common[label] = runs
    return common


def _differing_versions(runs: Iterable[Summary]) -> Iterator[str]:
    versions = [dict(run.content.get("versions") or {}) for run in runs]
    for name in sorted({name for installed in versions for name in installed}):
        seen = {str(installed.get(name)) for installed in versions}
        if len(seen) > 1:
            yield f"Made with different versions of {name}: {', '.join(sorted(seen))}."


def ordered_seniors(by_senior: BySenior) -> list[str]:
    """The seniors of one folder in the order of tables: the juniors' own models, then by name."""
    runs = [run for by_label in by_senior.values() for run in by_label.values()]
    juniors = [run.content["junior"] for run in runs if run.content.get("junior")]
    junior_models = {junior.get(key) for junior in juniors for key in ("name", "fingerprint")} - {
        None,
        "",
    }
    models = {run.senior: {run.senior, run.content["senior"].get("fingerprint")} for run in runs}
    return sorted(models, key=lambda name: (not models[name] & junior_models, name))
