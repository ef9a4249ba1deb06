"""Runs that generate and grade: the senior alone, and handoff to a junior."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EvaluationError
from tandem_plugin.grading import OUTCOMES, Grade
from tandem_plugin.lab.evaluation.engine_process import generate
from tandem_plugin.lab.evaluation.generation import (
    GenerationFile,
    Sampling,
    engine_settings,
    schedule_label,
)
from tandem_plugin.lab.evaluation.graders import FileGrader
from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint
from tandem_plugin.lab.evaluation.measures import pass_rates, powers_of_two
from tandem_plugin.lab.evaluation.results import run_folder, versions, write_summary
from tandem_plugin.lab.rollouts.engine import deciding
from tandem_plugin.lab.rollouts.rollout import text_digest
from tandem_plugin.lab.rollouts.rollout_file import (
    RolloutFile,
    grades_file,
    input_digest,
    placed_rows,
)
from tandem_plugin.progress import ShownProgress
from tandem_plugin.rules import TandemRules

_BATCH = 64
"""Responses that are graded together."""

_DECIDING = ("tandem-plugin", "sympy")
"""Packages that can change a grade with their version."""


def run_solo(
    out: Path,
    senior: Checkpoint,
    benchmarks: Sequence[Benchmark],
    sampling: Sampling,
    engine: Mapping[str, Any],
    protocol: Mapping[str, Any] | None = None,
    graders: Sequence[FileGrader] = (),
) -> Path:
    """The senior alone: responses, grades and pass@k; returns the summary.

    protocol: the summary's record of the protocol. graders: those used in
    addition to this package's. Source: section 4.2 of the paper.
    """
    folder = run_folder(out, "solo", senior.name)
    files = [GenerationFile(folder, benchmark, senior, None, None) for benchmark in benchmarks]
    generate(files, sampling, engine)
    return _summarise("solo", files, sampling, engine, protocol, graders)


def check_tokenizers(models: Sequence[Checkpoint]) -> None:
    """Raise :class:`TokenizerError` for a model whose tokenizer is missing, or loses text."""
    for model in models:
        Vocabulary.from_path(model.path)


def check_handoffs(
    seniors: Sequence[Checkpoint],
    schedules: Sequence[Mapping[str, Any]],
    engine: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Raise :class:`TokenizerError` if a senior's tokenizer has no boundaries for a schedule."""
    for senior in seniors:
        _rules(senior, schedules, engine)


def _rules(
    senior: Checkpoint, schedules: Sequence[Mapping[str, Any]], engine: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The record of each schedule's rule over the tokenizer that the engine will have."""
    vocabulary = Vocabulary.from_path(engine.get("tokenizer") or senior.path)
    configs = (TandemConfig.from_mapping(engine_settings(schedule)) for schedule in schedules)
    return [TandemRules(config, vocabulary).default.record() for config in configs]


def run_handoff(
    out: Path,
    senior: Checkpoint,
    junior: Checkpoint,
    schedules: Sequence[Mapping[str, Any]],
    benchmarks: Sequence[Benchmark],
    sampling: Sampling,
    engine: Mapping[str, Any],
    protocol: Mapping[str, Any] | None = None,
    graders: Sequence[FileGrader] = (),
) -> list[Path]:
    """Generate and grade team responses under each schedule, in one engine; returns the summaries.

    Token ids pass from author to author within the engine; only ``step-text`` retokenises.
    protocol, graders: as of :func:`run_solo`. Source: section 4.3 of the paper (``step``), appendix
    B.2 (other juniors), B.3 (``step-bernoulli``).
    """
    runs = [
        [
            GenerationFile(
                run_folder(out, "handoff", senior.name, junior.name, schedule_label(schedule)),
                benchmark,
                senior,
                junior,
                schedule,
                rule,
            )
            for benchmark in benchmarks
        ]
        for schedule, rule in zip(schedules, _rules(senior, schedules, engine), strict=True)
    ]
    generate([file for files in runs for file in files], sampling, engine)
    return [_summarise("handoff", files, sampling, engine, protocol, graders) for files in runs]


def _summarise(
    kind: str,
    files: Sequence[GenerationFile],
    sampling: Sampling,
    engine: Mapping[str, Any],
    protocol: Mapping[str, Any] | None,
    graders: Sequence[FileGrader],
) -> Path:
    first = files[0]
    graded = {file.benchmark.name: _tally(file, sampling, graders) for file in files}
    content = {
        "senior": asdict(first.senior),
        "junior": None if first.junior is None else asdict(first.junior),
        "settings": _settings(files, graded, sampling, engine)
        | ({"graders": {grader.name: grader.settings() for grader in graders}} if graders else {}),
        "metrics": {
            name: _metrics(problems, sampling.samples, first.schedule is not None)
            for name, problems in graded.items()
        },
        "benchmarks": {
            name: [problem.row(i) for i, problem in enumerate(problems)]
            for name, problems in graded.items()
        },
        **({} if protocol is None else {"protocol": dict(protocol)}),
    }
    return write_summary(first.folder, kind, content)


def _settings(
    files: Sequence[GenerationFile],
    graded: Mapping[str, Sequence[_Graded]],
    sampling: Sampling,
    engine: Mapping[str, Any],
) -> dict[str, Any]:
    """The settings that two comparable results share; the senior may differ.

    Includes a digest of the prompts' token ids, because chat templates change the prompts.
    """
    first = files[0]
    settings: dict[str, Any] = {
        "benchmarks": {
            file.benchmark.name: {
                **file.benchmark.settings(),
                "prompt_ids": text_digest(
                    json.dumps([problem.prompt_ids for problem in graded[file.benchmark.name]])
                ),
            }
            for file in files
        },
        "sampling": sampling.settings(),
        "engine": deciding(engine),
    }
    if first.schedule is not None and first.junior is not None:
        settings["schedule"] = dict(first.schedule)
        if (label := schedule_label(first.schedule)) != first.schedule["schedule"]:
            # Stored, because a result is read without the plugin that defines the defaults.
            settings["schedule"]["label"] = label
        settings["junior"] = first.junior.fingerprint
    return settings


def _metrics(problems: Sequence[_Graded], samples: int, team: bool) -> dict[str, Any]:
    """Means over a benchmark; tables of pass@k use the per-problem numbers."""
    responses = samples * len(problems)
    outcomes: Counter[str] = Counter()
    for problem in problems:
        outcomes.update(problem.outcomes)
    rows = [problem.row(i) for i, problem in enumerate(problems)]
    ks = powers_of_two(samples)
    rates = np.stack([pass_rates(rows, k) for k in ks], axis=1).mean(axis=0)
    metrics: dict[str, Any] = {
        "pass_at_k": {str(k): float(rate) for k, rate in zip(ks, rates, strict=True)},
        "outcomes": dict(sorted(outcomes.items())),
        "tokens_per_response": sum(problem.tokens for problem in problems) / responses,
        "truncated": sum(problem.truncated for problem in problems) / responses,
    }
    if team:
        shares = [
            share for problem in problems for share in problem.shares if not math.isnan(share)
        ]
        metrics["senior_share"] = {
            "mean": statistics.fmean(shares) if shares else None,
            "standard_deviation": statistics.stdev(shares) if len(shares) > 1 else None,
        }
        metrics["spans_per_response"] = sum(problem.spans for problem in problems) / responses
    return metrics


@dataclass(slots=True)
class _Graded:
    """The samples of one problem."""

    prompt_ids: list[int] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    correct_by: Counter[str] = field(default_factory=Counter)
    """How many are right by each other grader."""
    tokens: int = 0
    truncated: int = 0
    shares: list[float] = field(default_factory=list)
    """The senior's share of each team response's tokens."""
    spans: int = 0

    def row(self, problem: int) -> dict[str, Any]:
        """The problem's numbers in a summary."""
        return {
            "problem": problem,
            "samples": self.outcomes.total(),
            "correct": self.outcomes["correct"],
            "tokens": self.tokens,
            "truncated": self.truncated,
            **({"correct_by": dict(self.correct_by)} if self.correct_by else {}),
        }


def _grade(
    file: GenerationFile, sampling: Sampling, file_grader: FileGrader | None = None
) -> dict[tuple[int, int], Any]:
    """Grade every ungraded response; returns all outcomes.

    A stale grade, of a response that was generated again, is ignored: the last grade of a response
    counts. The whole text is graded, whoever wrote it. file_grader: used in place of this package's
    grader; its grades go into a separate file. Source: section 3.4 and appendix A.2 of the paper.
    """
    from tandem_plugin.grading import Grader

    noted = {
        "generations": file.path.name,
        "versions": {name: versions()[name] for name in _DECIDING},
        **({} if file_grader is None else {"grader": file_grader.settings()}),
    }
    path = grades_file(file.path, "" if file_grader is None else file_grader.name)
    with RolloutFile(path, noted) as written:
        outcomes, inputs = {}, {}
        for problem, sample, record in placed_rows(path):
            outcomes[problem, sample] = record.get("outcome")
            inputs[problem, sample] = record.get("input_sha256")
        todo = (
            (problem, sample, row)
            for problem, sample, row in file.responses(sampling.samples)
            if inputs.get((problem, sample)) != input_digest(row["response"], row["answer"])
        )
        batch = list(islice(todo, _BATCH))
        if not batch:
            return outcomes
        with file_grader.start() if file_grader else Grader() as grader, ShownProgress() as bar:
            total = len(file.benchmark.problems) * sampling.samples
            by = "" if file_grader is None else f" by {file_grader.name}"
            task = bar.add_task(f"grade {file.benchmark.name}{by}", total=total)
            while batch:
                grades = grader.grade_batch([(row["response"], row["answer"]) for *_, row in batch])
                for (problem, sample, row), grade in zip(batch, grades, strict=True):
                    written.append(problem, sample, _record(row, grade))
                    outcomes[problem, sample] = grade.outcome
                bar.update(task, completed=len(written.done))
                batch = list(islice(todo, _BATCH))
    return outcomes


def _record(row: Mapping[str, Any], grade: Grade) -> dict[str, Any]:
    """A grade file's row of one response."""
    return {
        "outcome": grade.outcome,
        "answer": grade.answer,
        "rule": grade.rule,
        "reward": grade.reward,
        "message": grade.message,
        "response_sha256": text_digest(row["response"]),
        "input_sha256": input_digest(row["response"], row["answer"]),
    }


def _tally(
    file: GenerationFile, sampling: Sampling, graders: Sequence[FileGrader]
) -> list[_Graded]:
    """The graded problems of a file, in order."""
    outcomes = _grade(file, sampling)
    problems = [_Graded() for _ in file.benchmark.problems]
    for grader in graders:
        for graded in problems:
            graded.correct_by[grader.name] = 0
        for (problem, sample), outcome in _grade(file, sampling, grader).items():
            if problem < len(problems) and sample < sampling.samples:
                problems[problem].correct_by[grader.name] += outcome == "correct"
    for problem, sample, row in file.responses(sampling.samples):
        outcome = outcomes[problem, sample]
        if outcome not in OUTCOMES:
            raise EvaluationError(
                "grades-outcome-unknown", path=grades_file(file.path), outcome=outcome
            )
        graded = problems[problem]
        graded.prompt_ids = graded.prompt_ids or row["prompt_ids"]
        graded.outcomes[outcome] += 1
        graded.tokens += len(row["response_ids"])
        graded.truncated += row.get("finish_reason") == "length"
        if file.schedule is not None:
            if "authorship" not in row:
                raise EvaluationError(
                    "team-response-without-authorship",
                    sample=sample,
                    problem=problem,
                    path=file.path,
                )
            authors = row["authorship"]
            graded.shares.append(sum(authors) / len(authors) if authors else float("nan"))
            graded.spans += bool(authors) + sum(a != b for a, b in pairwise(authors))
    return problems
