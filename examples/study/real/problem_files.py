"""The problems of the real part, the light part's own: for verl, and for `tandem eval`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from light.pairs import Problems

from real.demo import make_row, write_parquet

__all__ = ["BENCHMARK", "ProblemFiles", "write_problems"]

BENCHMARK = "chains"


@dataclass(frozen=True, slots=True)
class ProblemFiles:
    """Where the problems are: a benchmark for `tandem eval`, parquet for verl."""

    folder: Path

    @property
    def train(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def validation(self) -> Path:
        return self.folder / "validation.parquet"

    @property
    def benchmark(self) -> Path:
        return self.folder / f"{BENCHMARK}.jsonl"


def write_problems(files: ProblemFiles, problems: Problems, trained: int) -> None:
    """Write all of them; trained: how many training problems."""
    files.folder.mkdir(parents=True, exist_ok=True)
    held_out = [{"problem": one.question, "answer": str(one.answer)} for one in problems.held_out]
    files.benchmark.write_text("".join(json.dumps(row) + "\n" for row in held_out), "utf-8")
    for part, path, split in (
        (problems.training[:trained], files.train, "train"),
        (problems.validation, files.validation, "validation"),
    ):
        write_parquet((make_row(one.question, str(one.answer)) for one in part), path, split)
