"""Whether the junior can go on where the senior handed over, by how far apart both are there.

A penalty on KL(senior || junior) sees the divergence at a place, and not whether the junior could
continue from it (H_t of the paper, appendix C). Each response with one handover by the senior is a
draw of H_t; here KL is measured at the place of its handover.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import is_number
from tandem_plugin.lab.evaluation.comparison import handover_of
from tandem_plugin.lab.evaluation.generation import is_complete, read_generations
from tandem_plugin.lab.evaluation.inputs import Checkpoint, pieces_of
from tandem_plugin.lab.evaluation.results import (
    Summary,
    find_summaries,
    run_folder,
    write_summary,
)
from tandem_plugin.lab.evaluation.significance import RESAMPLES, bootstrap_errors
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, grades_file, placed_rows
from tandem_plugin.progress import ShownProgress

KIND = "handover-kl"


@dataclass(frozen=True, slots=True)
class _Scores:
    """One benchmark's file of a run: a line for each response."""

    run: Summary
    benchmark: str
    path: Path
    settings: Mapping[str, Any]
    """Everything that a line depends on."""

    @property
    def size(self) -> tuple[int, int]:
        """The number of problems, and of responses to each."""
        problems = self.run.problems[self.benchmark]
        return len(problems), int(self.run.settings["sampling"]["samples"])

    @property
    def responses(self) -> Path:
        return self.run.folder / f"{self.benchmark}.jsonl"

    def is_complete(self) -> bool:
        return is_complete(self.path, self.settings, *self.size, _check_score)

    def by_problem(self) -> list[dict[str, Any]]:
        """The rows of a summary: each handover's KL, and whether its response is right."""
        graded = placed_rows(grades_file(self.responses))
        outcomes = {(problem, sample): row.get("outcome") for problem, sample, row in graded}
        rows: list[dict[str, Any]] = [
            {"problem": problem, "kl": [], "continued": []} for problem in range(self.size[0])
        ]
        scored = read_generations(self.path, *self.size, _check_score)
        for problem, sample, score in sorted(scored, key=lambda placed: placed[:2]):
            if score["kl"] is not None:
                rows[problem]["kl"].append(score["kl"])
                is_right = outcomes.get((problem, sample)) == "correct"
                rows[problem]["continued"].append(int(is_right))
        return rows


def run_handover_kl(
    out: Path,
    senior: Checkpoint,
    junior: Checkpoint,
    dtype: str = "auto",
    protocol: Mapping[str, Any] | None = None,
) -> list[Path]:
    """KL(senior || junior) at each handover of the senior; returns the summaries.

    Reads the finished runs of :func:`~tandem_plugin.lab.evaluation.solo_handoff.run_handoff` with
    one handover that the senior began; empty without any. dtype: of the reading models. protocol:
    the summaries' record of the protocol. Raises :class:`EvaluationError` for models with different
    vocabularies, and for a run with other weights.
    """
    runs = list(_handovers(out, senior, junior))
    files = {run: _files(out, run, dtype) for run in runs}
    missing = [file for of_run in files.values() for file in of_run if not file.is_complete()]
    if missing:
        if pieces_of(senior.path) != pieces_of(junior.path):
            raise EvaluationError(
                "evaluation-vocabularies-differ", senior=senior.name, junior=junior.name
            )
        _score(missing, senior, junior, dtype)
    models = {"senior": asdict(senior), "junior": asdict(junior)}
    protocols = {} if protocol is None else {"protocol": dict(protocol)}
    return [
        write_summary(
            _folder(out, run),
            KIND,
            {
                **models,
                "settings": {**run.settings, "dtype": dtype},
                "benchmarks": {file.benchmark: file.by_problem() for file in of_run},
                **protocols,
            },
        )
        for run, of_run in files.items()
    ]


@dataclass(frozen=True, slots=True)
class HalvesByKL:
    """One senior's handovers to a junior, in those of a low and those of a high KL."""

    median: float
    """Of its own KL, in nats."""
    low: tuple[float, float]
    """The share of handovers with a low KL that the junior continued to a right answer, and its
    standard error over problems; NaN without any."""
    high: tuple[float, float]
    unseen: float
    """The share of all handovers with a low KL that the junior did not continue: a penalty on KL
    does not act there, and a team's reward does."""
    correlation: float
    """Spearman's, of KL and being continued; NaN where either is constant."""


def halves_by_kl(
    seniors: Mapping[str, Sequence[Summary]], resamples: int = RESAMPLES
) -> dict[str, HalvesByKL]:
    """Each senior's handovers, over all of its runs; low is below the median of all seniors.

    Empty without any handover. Source: appendix C of the paper, table of KL by H_t.
    """
    problems = {senior: _problems(runs) for senior, runs in seniors.items()}
    kls = [kl for of_senior in problems.values() for row in of_senior for kl in row["kl"]]
    if not kls:
        return {}
    border = float(np.median(kls))
    return {
        senior: _halves(of_senior, border, resamples)
        for senior, of_senior in problems.items()
        if any(row["kl"] for row in of_senior)
    }


def _problems(runs: Sequence[Summary]) -> list[dict[str, list[float]]]:
    """The handovers of each problem, over all of the runs."""
    joined: dict[tuple[str, int], dict[str, list[float]]] = {}
    for run in [repeat for pooled in runs for repeat in pooled.each]:
        for name, rows in run.problems.items():
            for row in rows:
                place = (name, row["problem"])
                of_problem = joined.setdefault(place, {"kl": [], "continued": []})
                of_problem["kl"] += row["kl"]
                of_problem["continued"] += row["continued"]
    return [joined[place] for place in sorted(joined)]


def _halves(
    problems: Sequence[Mapping[str, Sequence[float]]], border: float, resamples: int
) -> HalvesByKL:
    from scipy import stats

    kl = np.concatenate([row["kl"] for row in problems])
    continued = np.concatenate([row["continued"] for row in problems])
    varies = np.ptp(kl) > 0 and np.ptp(continued) > 0
    correlation = stats.spearmanr(kl, continued).statistic if varies else float("nan")
    low = [[right for value, right in _pairs(row) if value < border] for row in problems]
    high = [[right for value, right in _pairs(row) if value >= border] for row in problems]
    unseen = float(((kl < border) & (continued == 0)).mean())
    return HalvesByKL(
        float(np.median(kl)),
        _share(low, resamples),
        _share(high, resamples),
        unseen,
        float(correlation),
    )


def _pairs(row: Mapping[str, Sequence[float]]) -> Iterator[tuple[float, float]]:
    return zip(row["kl"], row["continued"], strict=True)


def _share(half: Sequence[Sequence[float]], resamples: int) -> tuple[float, float]:
    """The share of ones in all of the problems' lists, and its error over those that have any."""
    written = [of_problem for of_problem in half if of_problem]
    if not written:
        return float("nan"), float("nan")
    weights = np.array([len(of_problem) for of_problem in written], dtype=np.float64)
    means = np.array([[np.mean(of_problem)] for of_problem in written])
    _, error = bootstrap_errors({KIND: means}, resamples, {KIND: weights})
    return float(weights @ means[:, 0] / weights.sum()), float(error[0])


def handover_place(authorship: Sequence[int]) -> int | None:
    """The junior's first token; None if the senior wrote the whole response."""
    return next((place for place, author in enumerate(authorship) if not author), None)


def _handovers(out: Path, senior: Checkpoint, junior: Checkpoint) -> Iterator[Summary]:
    """The runs in which the senior began and handed over once, to this junior."""
    folder = run_folder(out, "handoff", senior.name)
    for run in find_summaries(folder) if folder.is_dir() else ():
        place = handover_of(run)
        if run.junior != junior.name or place is None or place[0] != "senior":
            continue
        for role, model in (("senior", senior), ("junior", junior)):
            if (noted := run.content[role].get("fingerprint")) != model.fingerprint:
                raise EvaluationError(
                    "solo-run-other-model",
                    name=model.name,
                    noted=noted,
                    fingerprint=model.fingerprint,
                )
        yield run


def _folder(out: Path, run: Summary) -> Path:
    return run_folder(out, KIND, run.senior, run.junior or "", run.folder.parent.name)


def _files(out: Path, run: Summary, dtype: str) -> list[_Scores]:
    sampling = {k: v for k, v in run.settings["sampling"].items() if k != "samples"}
    fingerprints = {role: run.content[role]["fingerprint"] for role in ("senior", "junior")}
    noted = {**fingerprints, "schedule": dict(run.settings["schedule"]), **sampling, "dtype": dtype}
    return [
        _Scores(
            run,
            name,
            _folder(out, run) / f"{name}.scores.jsonl",
            {**noted, "benchmark": run.settings["benchmarks"][name]},
        )
        for name in run.problems
    ]


def _score(files: Sequence[_Scores], senior: Checkpoint, junior: Checkpoint, dtype: str) -> None:
    """Append the missing lines: KL in nats at the handover, null where there was none."""
    from tandem_plugin.lab.evaluation.scoring import HFModel, score_response

    writer, reader = HFModel(senior, dtype), HFModel(junior, dtype)
    for file in files:
        with RolloutFile(file.path, file.settings) as lines, ShownProgress(transient=False) as bar:
            task = bar.add_task(
                f"KL at handovers of {file.run.senior}: {file.benchmark}",
                total=math.prod(file.size),
                completed=len(lines.done),
            )
            for problem, sample, row in read_generations(file.responses, *file.size):
                if (problem, sample) in lines.done:
                    continue
                place, kl = handover_place(row["authorship"]), None
                if place is not None:
                    ids = row["prompt_ids"], row["response_ids"][: place + 1]
                    written, read = writer.states(*ids)[-1:], reader.states(*ids)[-1:]
                    kl = score_response(written, writer.head, read, reader.head, ids[1][-1:], 1).kl
                lines.append(problem, sample, {"kl": kl})
                bar.advance(task)


def _check_score(row: Mapping[str, Any]) -> None:
    kl = row.get("kl", "missing")
    if kl is not None and not is_number(kl):
        raise ValueError("its kl is not a number")
