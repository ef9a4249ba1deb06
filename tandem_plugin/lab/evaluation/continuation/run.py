"""Runs of continuation: the junior goes on from places of the seniors' own responses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries import BoundarySet, Vocabulary
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files.strict_json import is_number
from tandem_plugin.lab.evaluation.checkpoint import Checkpoint, check_same_vocabulary
from tandem_plugin.lab.evaluation.continuation.places import ContinuedBenchmark, continued_benchmark
from tandem_plugin.lab.evaluation.continuation.result import (
    Continuation,
    Outcome,
    write_continuation,
)
from tandem_plugin.lab.evaluation.generation import GenerationFile, generate, read_rows_of
from tandem_plugin.lab.evaluation.grades import grade_generations, tally
from tandem_plugin.lab.evaluation.results import Summary, run_folder, solo_summary
from tandem_plugin.lab.evaluation.sampling import Sampling
from tandem_plugin.lab.rollouts.engine import deciding
from tandem_plugin.plugins.selection import resolve_boundaries

__all__ = ["KIND", "run_continuation"]

KIND = "continuation"


def run_continuation(
    out: Path,
    senior: Checkpoint,
    junior: Checkpoint,
    *,
    continuations: int,
    places: int,
    samples: int | None,
    boundaries: str,
    seed: int,
    engine: Mapping[str, Any],
    dtype: str = "auto",
    device: str | None = None,
) -> Path:
    """Let the junior go on from every place of the senior's own responses; returns the result.

    continuations: from each place. places: the most of one response. samples: only the first of
    each problem's responses; None takes all. boundaries: the resolver behind whose boundaries
    places are. The junior samples as the senior did, but for the seed, up to the same length.
    Raises :class:`EvaluationError` where the senior has no solo run, one by other weights, or no
    place at all. Source: H_t of the paper, its appendix on KL regularisation.
    """
    solo = solo_summary(out, senior.name, senior.fingerprint)
    asked = int(solo.settings["sampling"]["samples"])
    used = asked if samples is None else samples
    if not 1 <= used <= asked:
        raise EvaluationError(
            f"samples={used}: the solo run of {senior.name!r} has {asked} a problem. Give a number "
            f"from 1 to {asked}."
        )
    check_same_vocabulary(senior, junior)
    found = resolve_boundaries(boundaries, Vocabulary.from_path(senior.path))
    settings = {"samples": used, "places": places, "boundaries": boundaries}
    folder = run_folder(out, KIND, senior.name, junior.name)
    sampling = Sampling(**{**solo.settings["sampling"], "samples": continuations, "seed": seed})
    benchmarks = _benchmarks(solo, found, used, places)
    files = [GenerationFile(folder, one, junior, None, None) for one in benchmarks]
    generate(files, sampling, engine)
    outcomes = {}
    for benchmark, file in zip(benchmarks, files, strict=True):
        grade_generations(file, sampling)
        apart = _divergences(benchmark, folder, senior, junior, dtype, device)
        outcomes[benchmark.name] = [
            Outcome(one.problem, one.sample, one.position, kl, graded.outcomes["correct"])
            for one, kl, graded in zip(
                benchmark.problems, apart, tally(file, sampling), strict=True
            )
        ]
    result = Continuation(
        senior.name,
        junior.name,
        continuations,
        {
            **settings,
            "solo": dict(solo.settings),
            "sampling": sampling.settings(),
            "engine": deciding(engine),
            "dtype": dtype,
            "junior": junior.fingerprint,
        },
        outcomes,
    )
    return write_continuation(folder, senior.settings(), junior.settings(), result)


def _benchmarks(
    solo: Summary, boundaries: BoundarySet, samples: int, places: int
) -> list[ContinuedBenchmark]:
    every = [continued_benchmark(solo, name, boundaries, samples, places) for name in solo.problems]
    found = [one for one in every if one.problems]
    if not found:
        raise EvaluationError(
            f"The responses of {solo.senior!r} have no place behind a {boundaries.resolver!r} "
            "boundary: give another --boundaries."
        )
    return found


def _divergences(
    benchmark: ContinuedBenchmark,
    folder: Path,
    senior: Checkpoint,
    junior: Checkpoint,
    dtype: str,
    device: str | None,
) -> list[float]:
    """The divergence at every place, written a response at a time and gone on with."""
    from tandem_plugin.lab.evaluation.continuation.divergence import divergence_at
    from tandem_plugin.lab.evaluation.reader import Reader
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile
    from tandem_plugin.progress import ShownProgress

    path = folder / f"{benchmark.name}.scores.jsonl"
    noted = {
        **benchmark.settings(),
        "senior_fingerprint": senior.fingerprint,
        "junior_fingerprint": junior.fingerprint,
        "dtype": dtype,
    }
    numbered = list(enumerate(benchmark.problems))
    with RolloutFile(path, noted) as file, ShownProgress(transient=False) as progress:
        task = progress.add_task(
            f"{senior.name} and {junior.name} on {benchmark.name}",
            total=len(numbered),
            completed=len(file.done),
        )
        readers: tuple[Reader, Reader] | None = None
        for _, group in groupby(numbered, key=lambda one: (one[1].problem, one[1].sample)):
            places = list(group)
            if all((number, 0) in file.done for number, _ in places):
                continue
            readers = readers or (Reader(senior, dtype, device), Reader(junior, dtype, device))
            row = places[0][1].row
            positions = [one.position for _, one in places]
            apart = divergence_at(*readers, row["prompt_ids"], row["response_ids"], positions)
            for (number, _), kl in zip(places, apart, strict=True):
                if (number, 0) not in file.done:
                    file.append(number, 0, {"divergence": kl})
                    progress.advance(task)
        for reader in readers or ():
            reader.close()
    rows = read_rows_of(path, len(numbered), 1, _check_divergence)
    return [row["divergence"] for _, _, row in sorted(rows, key=lambda found: found[0])]


def _check_divergence(row: Mapping[str, Any]) -> None:
    if not is_number(row.get("divergence")) or row["divergence"] < 0:
        raise ValueError("its divergence is no number")
