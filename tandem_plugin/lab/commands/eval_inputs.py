"""What `tandem eval` is given: read and checked before any hour is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.benchmark import Benchmark
    from tandem_plugin.lab.evaluation.checkpoint import Checkpoint

__all__ = [
    "begin",
    "check_same",
    "find_checkpoints",
    "read_benchmarks",
    "team_schedules",
]


def begin(
    out: Path,
    seniors: Sequence[Checkpoint],
    juniors: Sequence[Checkpoint],
    sources: Sequence[str],
    benchmarks: Sequence[Benchmark],
    schedules: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Refuse to write over what is read, and note the seniors in the user's order."""
    from tandem_plugin.files import InputFiles
    from tandem_plugin.lab.data.records import record_files
    from tandem_plugin.lab.evaluation.benchmark import source_of
    from tandem_plugin.lab.evaluation.results import run_files, run_folder
    from tandem_plugin.lab.evaluation.senior_order import note_seniors, order_file
    from tandem_plugin.lab.evaluation.team_schedule import label
    from tandem_plugin.terminal.tokenizers import model_files

    inputs = InputFiles(
        benchmark=[file for given in sources for file in record_files(source_of(given))],
        checkpoint=[file for one in (*seniors, *juniors) for file in model_files(one.path)],
    )
    names = [one.name for one in benchmarks]
    inputs.check_outputs(order_file(out))
    for one in seniors:
        folders = [run_folder(out, "solo", one.name)]
        for pair in [(one.name, junior.name) for junior in juniors]:
            folders += [run_folder(out, kind, *pair) for kind in ("legibility", "drift")]
            folders += [
                run_folder(out, "handoff", *pair, schedule=label(schedule))
                for schedule in schedules
            ]
        for folder in folders:
            inputs.check_outputs(*run_files(folder, names))
    note_seniors(out, [one.name for one in seniors])


def team_schedules(
    names: list[str] | None, parameters: list[str] | None = None, boundaries: str | None = None
) -> list[dict[str, Any]]:
    """The settings of each schedule that was asked for, step where none was.

    parameters: ``NAME=VALUE`` of the option ``--set``, for each of them.
    """
    from tandem_plugin.lab.evaluation.team_schedule import team_schedule
    from tandem_plugin.terminal.assignments import assignments

    given = assignments("--set", parameters or ())
    return [team_schedule(name, given, boundaries) for name in dict.fromkeys(names or ["step"])]


def read_benchmarks(given: Sequence[str]) -> list[Benchmark]:
    """The benchmarks, from ``NAME=SOURCE``; no two of one name."""
    from tandem_plugin.lab.evaluation.benchmark import read_benchmark

    benchmarks = [read_benchmark(one) for one in given]
    _check_names([one.name for one in benchmarks], "--benchmark")
    return benchmarks


def find_checkpoints(given: Sequence[str]) -> list[Checkpoint]:
    """The models, from ``NAME=PATH``; no two of one name."""
    from tandem_plugin.lab.evaluation.checkpoint import find_checkpoint
    from tandem_plugin.progress import waiting

    with waiting("read the checkpoints"):
        checkpoints = [find_checkpoint(one) for one in given]
    _check_names([one.name for one in checkpoints], "--senior or --junior")
    return checkpoints


def _check_names(names: Sequence[str], option: str) -> None:
    from tandem_plugin.errors import EvaluationError

    for name in names:
        if names.count(name) > 1:
            raise EvaluationError(
                f"{option} has the name {name!r} twice: give each one a name of its own, as in "
                "NAME=PATH."
            )


def check_same(seniors: Sequence[Checkpoint], juniors: Sequence[Checkpoint]) -> None:
    """Raise :class:`EvaluationError` where one name stands for two models."""
    from tandem_plugin.errors import EvaluationError

    known = {one.name: one for one in juniors}
    for one in seniors:
        other = known.get(one.name, one)
        if other.fingerprint != one.fingerprint:
            raise EvaluationError(
                f"The senior {one.name!r} ({one.path}) and the junior of that name ({other.path}) "
                "are different models: give them different names."
            )
