"""Runs that generate: the senior alone, and the senior handing over to a junior."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.lab.evaluation.benchmark import Benchmark
from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
from tandem_plugin.lab.evaluation.generation import GenerationFile, generate
from tandem_plugin.lab.evaluation.grades import GradedProblem, grade_generations, tally
from tandem_plugin.lab.evaluation.pass_at_k import pass_at_k_table, powers_of_two
from tandem_plugin.lab.evaluation.results import run_folder, write_summary
from tandem_plugin.lab.evaluation.sampling import Sampling
from tandem_plugin.lab.evaluation.team_schedule import label
from tandem_plugin.lab.rollouts.engine import deciding
from tandem_plugin.progress import waiting
from tandem_plugin.rules import TandemRules

__all__ = ["check_handoffs", "generation_settings", "run_handoff", "run_solo", "solo_files"]


def solo_files(
    out: Path, senior: Checkpoint, benchmarks: Sequence[Benchmark]
) -> list[GenerationFile]:
    """The files of a senior's own responses."""
    folder = run_folder(out, "solo", senior.name)
    return [GenerationFile(folder, benchmark, senior, None, None) for benchmark in benchmarks]


def run_solo(
    out: Path,
    senior: Checkpoint,
    benchmarks: Sequence[Benchmark],
    sampling: Sampling,
    engine: Mapping[str, Any],
) -> Path:
    """The senior alone: responses, grades and pass@k; returns the summary.

    Source: section 4.2 of the paper.
    """
    files = solo_files(out, senior, benchmarks)
    generate(files, sampling, engine)
    return _summarise("solo", files, sampling, engine)


def check_handoffs(seniors: Sequence[Checkpoint], schedules: Sequence[Mapping[str, Any]]) -> None:
    """Raise :class:`TokenizerError` where a senior's tokenizer has no boundaries for a schedule."""
    for senior in seniors:
        vocabulary = Vocabulary.from_path(senior.path)
        for schedule in schedules:
            TandemRules(TandemConfig.from_mapping(schedule), vocabulary)


def run_handoff(
    out: Path,
    senior: Checkpoint,
    junior: Checkpoint,
    schedules: Sequence[Mapping[str, Any]],
    benchmarks: Sequence[Benchmark],
    sampling: Sampling,
    engine: Mapping[str, Any],
) -> list[Path]:
    """Senior and junior as a team under each schedule, in one engine; returns the summaries.

    Token ids pass from author to author within the engine: nothing is tokenised again. Source:
    section 4.3 of the paper (``step``), appendix B.2 (other juniors), B.3 (``step-bernoulli``).
    """
    runs = [
        [
            GenerationFile(
                run_folder(out, "handoff", senior.name, junior.name, label(schedule)),
                benchmark,
                senior,
                junior,
                schedule,
            )
            for benchmark in benchmarks
        ]
        for schedule in schedules
    ]
    generate([file for files in runs for file in files], sampling, engine)
    return [_summarise("handoff", files, sampling, engine) for files in runs]


def generation_settings(
    files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]
) -> dict[str, Any]:
    """What two results must share to be compared; the senior is what may differ.

    A digest of the prompts' token ids is part of it: other chat templates ask other questions.
    """
    first = files[0]
    settings: dict[str, Any] = {
        "benchmarks": {
            file.benchmark.name: {
                **file.benchmark.settings(),
                "prompt_ids": _prompts_digest(file, sampling),
            }
            for file in files
        },
        "sampling": sampling.settings(),
        "engine": deciding(engine),
    }
    if first.schedule is not None and first.junior is not None:
        settings["schedule"] = dict(first.schedule)
        if (named := label(first.schedule)) != first.schedule["schedule"]:
            # Kept, since a result is read without the plugin that knows the defaults.
            settings["schedule"]["label"] = named
        settings["junior"] = first.junior.fingerprint
    return settings


def _summarise(
    kind: str, files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]
) -> Path:
    for file in files:
        grade_generations(file, sampling)
    first = files[0]
    with waiting(f"summarise {first.senior.name}"):
        graded = {file.benchmark.name: tally(file, sampling) for file in files}
    content = {
        "senior": first.senior.settings(),
        "junior": None if first.junior is None else first.junior.settings(),
        "settings": generation_settings(files, sampling, engine),
        "metrics": {
            name: _metrics(problems, sampling.samples, kind == "handoff")
            for name, problems in graded.items()
        },
        "benchmarks": {
            name: [found.row(i) for i, found in enumerate(problems)]
            for name, problems in graded.items()
        },
    }
    return write_summary(first.folder, kind, content)


def _metrics(problems: Sequence[GradedProblem], samples: int, team: bool) -> dict[str, Any]:
    """For people who read the file: tables are made from the per-problem numbers."""
    ks = powers_of_two(samples)
    table = pass_at_k_table(samples, [found.outcomes["correct"] for found in problems], ks)
    responses = sum(found.samples for found in problems)
    outcomes: Counter[str] = Counter()
    for found in problems:
        outcomes.update(found.outcomes)
    metrics: dict[str, Any] = {
        "pass_at_k": {
            str(k): float(value) for k, value in zip(ks, table.mean(axis=0), strict=True)
        },
        "outcomes": dict(sorted(outcomes.items())),
        "tokens_per_response": sum(found.tokens for found in problems) / responses,
        "truncated": sum(found.truncated for found in problems) / responses,
    }
    if team:
        shares = [share for found in problems for share in found.shares if not math.isnan(share)]
        metrics["senior_share"] = {
            "mean": statistics.fmean(shares) if shares else None,
            "standard_deviation": statistics.stdev(shares) if len(shares) > 1 else None,
        }
        metrics["spans_per_response"] = sum(found.spans for found in problems) / responses
    return metrics


def _prompts_digest(file: GenerationFile, sampling: Sampling) -> str:
    prompts = _firsts(
        (problem, row["prompt_ids"]) for problem, _, row in file.responses(sampling.samples)
    )
    text = json.dumps([prompts[problem] for problem in sorted(prompts)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _firsts(found: Iterable[tuple[int, list[int]]]) -> dict[int, list[int]]:
    prompts: dict[int, list[int]] = {}
    for problem, ids in found:
        prompts.setdefault(problem, ids)
    return prompts
