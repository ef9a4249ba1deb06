"""Schedules of teams, generated responses and their grades."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import failing_engines
import pytest
from made_results import write_run
from refused import refused

from tandem_plugin import TandemConfig, TandemRules
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EngineError
from tandem_plugin.lab.evaluation import engine_process, generation, solo_handoff
from tandem_plugin.lab.evaluation.engine_process import generate
from tandem_plugin.lab.evaluation.generation import (
    GenerationFile,
    Sampling,
    engine_settings,
    read_generations,
    schedule_label,
    team_schedule,
)
from tandem_plugin.lab.evaluation.inputs import Benchmark, Checkpoint, read_benchmark
from tandem_plugin.lab.evaluation.results import read_summary
from tandem_plugin.lab.evaluation.solo_handoff import (
    check_handoffs,
    run_handoff,
    run_solo,
)
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, grades_file
from tandem_plugin.request import TandemRequest


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("step", {}, "step"),
        ("step", {"first": "senior"}, "step"),
        ("handover", {"after": 32, "first": "senior"}, "handover,first=senior,after=32"),
        ("word", {"p": 0.25}, "word,p=0.25"),
    ],
)
def test_label_says_what_is_not_by_default(name: str, parameters: dict[str, Any], expected: str):
    team = team_schedule(name, parameters)
    assert schedule_label(team) == expected
    assert TandemConfig.from_mapping(engine_settings(team)).schedule == name
    request = TandemRequest.parse({**team, "seed": 1})
    assert request is not None
    assert {"schedule": request.schedule, **request.parameters} == team


def test_runs_of_other_parameters_are_called_otherwise(tmp_path: Path):
    """The label is read from the result: the plugin that knows the defaults may be missing."""
    settings = {"schedule": {"schedule": "leap", "far": 3, "label": "leap,far=3"}, "junior": "bb"}
    benchmarks = {"sums": [{"problem": 0, "samples": 2, "correct": 1}]}
    place = tmp_path, "handoff", "s", "base", "leap"
    folder = write_run(*place, settings=settings, benchmarks=benchmarks)
    summary = read_summary(folder / "summary.json")
    assert summary.label == "handoff leap,far=3 base"


SAMPLING = Sampling(2, max_tokens=9)
SENIOR, JUNIOR = Checkpoint("s", "/models/s", "aa"), Checkpoint("j", "/models/j", "bb")
STEP = {"schedule": "step", "first": "senior"}


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    file = tmp_path / "sums.jsonl"
    rows = [{"problem": f"What is {i} + 1?", "answer": i + 1} for i in range(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_benchmark(str(file))


def write(
    file: GenerationFile,
    sampling: Sampling,
    boxes: dict[tuple[int, int], str],
    engine: dict[str, Any] | None = None,
) -> None:
    """Responses as the engine's process would leave them."""
    with RolloutFile(file.path, file.settings(sampling, engine or {})) as written:
        for (problem, sample), box in boxes.items():
            question = file.benchmark.questions()[problem]
            row: dict[str, Any] = {
                "prompt": question["messages"],
                "answer": question["golds"],
                "response": f"So \\boxed{{{box}}}.",
                "finish_reason": "stop" if sample == 0 else "length",
                "prompt_ids": [1, problem],
                "response_ids": [1, 2, 3, 4],
                "tandem_seed": None,
            }
            if file.schedule is not None:
                row |= {"authorship": [1, 1, 1, 0] if sample == 0 else [1, 0, 1, 0]}
            written.append(problem, sample, row)


PLACES = [(i, j) for j in range(2) for i in (2, 0, 1)]


@pytest.fixture
def solo(tmp_path: Path, benchmark: Benchmark) -> GenerationFile:
    """The file of a solo run under ``tmp_path``, to be graded."""
    pytest.importorskip("sympy")
    return GenerationFile(tmp_path / "s/solo", benchmark, SENIOR, None, None)


def evaluated(file: GenerationFile, sampling: Sampling = SAMPLING) -> Path:
    return run_solo(file.folder.parents[1], SENIOR, [file.benchmark], sampling, {})


def test_solo_run_grades_and_counts(solo: GenerationFile):
    # Problem 0 is right twice, 1 once, 2 never.
    right = {(0, 0), (0, 1), (1, 1)}
    write(solo, SAMPLING, {p: str(p[0] + 1) if p in right else "-7" for p in PLACES})
    summary = read_summary(evaluated(solo))
    assert summary.problems["sums"] == [
        {"problem": 0, "samples": 2, "correct": 2, "tokens": 8, "truncated": 1},
        {"problem": 1, "samples": 2, "correct": 1, "tokens": 8, "truncated": 1},
        {"problem": 2, "samples": 2, "correct": 0, "tokens": 8, "truncated": 1},
    ]
    metrics = summary.content["metrics"]["sums"]
    assert metrics["pass_at_k"] == {"1": 0.5, "2": pytest.approx(2 / 3)}
    assert metrics["outcomes"] == {"correct": 3, "incorrect": 3}
    assert metrics["truncated"] == 0.5
    assert summary.content["senior"] == {"name": "s", "path": "/models/s", "fingerprint": "aa"}
    assert summary.settings["sampling"] == SAMPLING.settings()


def test_grading_resumes(solo: GenerationFile):
    write(solo, SAMPLING, {p: str(p[0] + 1) for p in PLACES})
    path = evaluated(solo)
    first = path.read_text()
    grades = grades_file(solo.path)
    whole = grades.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.unlink()
    grades.write_bytes(b"".join(lines[:2]) + lines[2][:11])  # killed within the third line
    assert evaluated(solo).read_text() == first
    assert grades.read_bytes() == whole


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch, byte_level: Vocabulary) -> dict[str, Any]:
    """The record of the rule of :data:`STEP` over the senior's tokenizer."""
    monkeypatch.setattr(Vocabulary, "from_path", lambda path: byte_level)
    return TandemRules(TandemConfig.from_mapping(STEP), byte_level).default.record()


def test_team_run_has_senior_shares(tmp_path: Path, benchmark: Benchmark, rule: dict[str, Any]):
    pytest.importorskip("sympy")
    out = tmp_path / "out"
    file = GenerationFile(out / "s/handoff/step/j", benchmark, SENIOR, JUNIOR, STEP, rule)
    write(file, SAMPLING, dict.fromkeys(PLACES, "1"))
    (path,) = run_handoff(out, SENIOR, JUNIOR, [STEP], [benchmark], SAMPLING, {})
    summary = read_summary(path)
    assert summary.settings["schedule"] == STEP
    assert summary.settings["junior"] == "bb"
    share = summary.content["metrics"]["sums"]["senior_share"]
    assert share["mean"] == pytest.approx((0.75 + 0.5) / 2)
    # Three of each: the sample variance is 6 (1/8)^2 / 5.
    assert share["standard_deviation"] == pytest.approx((6 / 64 / 5) ** 0.5)
    assert summary.content["metrics"]["sums"]["spans_per_response"] == 3


def test_team_run_of_another_rule_is_not_resumed(
    tmp_path: Path, benchmark: Benchmark, rule: dict[str, Any]
):
    """The schedule's name and parameters are the same: a plugin's code or version changed."""
    out = tmp_path / "out"
    for changed in ({"fingerprint": "0" * 16}, {**rule, "code": "0" * 16}):
        folder = out / "s/handoff/step/j"
        file = GenerationFile(folder, benchmark, SENIOR, JUNIOR, STEP, changed)
        write(file, SAMPLING, dict.fromkeys(PLACES, "1"))
        with refused("rollout-settings-changed", name="rule"):
            run_handoff(out, SENIOR, JUNIOR, [STEP], [benchmark], SAMPLING, {})
        file.path.unlink()


@pytest.mark.parametrize(
    "edit",
    [
        {"response": "So \\boxed{2}."},
        {"authorship": [0, 1, 1, 0]},
        {"response_ids": [1, 2, 3, 5]},
        {"prompt_ids": [2]},
        {"answer": ["7"]},
        {"finish_reason": "length"},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_response_that_was_edited_is_refused_by_its_line(
    tmp_path: Path, benchmark: Benchmark, rule: dict[str, Any], edit: dict[str, Any]
):
    out = tmp_path / "out"
    file = GenerationFile(out / "s/handoff/step/j", benchmark, SENIOR, JUNIOR, STEP, rule)
    write(file, SAMPLING, dict.fromkeys(PLACES, "1"))
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    rows[2] |= edit
    file.path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with refused("rollout-line-invalid", line=3):
        run_handoff(out, SENIOR, JUNIOR, [STEP], [benchmark], SAMPLING, {})
    with refused("responses-unreadable"):  # legibility and drift read it as well
        list(read_generations(file.path, 3, 2))


def test_grade_that_was_edited_is_refused_and_blank_lines_are_read_over(solo: GenerationFile):
    write(solo, SAMPLING, dict.fromkeys(PLACES, "-7"))
    first = evaluated(solo).read_text()
    for file in (solo.path, grades_file(solo.path)):
        file.write_text(file.read_text().replace("\n", "\n\n", 2))
    assert evaluated(solo).read_text() == first
    grades = grades_file(solo.path)
    grades.write_text(grades.read_text().replace('"incorrect"', '"correct"', 1))
    with refused("rollout-line-invalid", line=1):
        evaluated(solo)


def test_broken_response_is_refused_before_the_others_are_generated(
    tmp_path: Path, benchmark: Benchmark
):
    file = GenerationFile(tmp_path / "out", benchmark, SENIOR, None, None)
    write(file, SAMPLING, {(0, 0): "1"})
    row = json.loads(file.path.read_text())
    del row["response"], row["row_sha256"]
    file.path.write_text(json.dumps(row) + "\n")
    with refused("rollout-line-invalid", line=1):
        generate([file], SAMPLING, {})


def test_fewer_samples_are_the_first_ones(solo: GenerationFile):
    write(solo, SAMPLING, {p: str(p[0] + 1) for p in PLACES})
    summary = read_summary(evaluated(solo, Sampling(1, max_tokens=9)))
    assert [row["samples"] for row in summary.problems["sums"]] == [1, 1, 1]
    assert summary.settings["sampling"]["samples"] == 1


def test_other_settings_are_refused_before_anything_starts(
    tmp_path: Path, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
):
    file = GenerationFile(tmp_path / "out", benchmark, SENIOR, None, None)
    write(file, SAMPLING, {(0, 0): "1"})
    with refused("rollout-settings-changed", name="temperature", before=0.6, now=1.0):
        generate([file], Sampling(2, temperature=1.0, max_tokens=9), {})
    retrained = Checkpoint("s", "/models/s", "cc")
    with refused("rollout-settings-changed", name="senior_fingerprint", before="aa", now="cc"):
        generate([GenerationFile(tmp_path / "out", benchmark, retrained, None, None)], SAMPLING, {})
    monkeypatch.setattr(generation, "__version__", "9.9")
    with refused("rollout-settings-changed", name="tandem_plugin", now="9.9"):
        generate([file], SAMPLING, {})


def test_missing_responses_are_not_passed_over(tmp_path: Path, benchmark: Benchmark):
    file = GenerationFile(tmp_path / "out", benchmark, SENIOR, None, None)
    write(file, SAMPLING, {(0, 0): "1", (0, 1): "1"})
    with refused("responses-incomplete", responses=2, expected=6):
        list(read_generations(file.path, 3, 2))
    assert len(list(read_generations(file.path, 1, 2))) == 2
    with refused("responses-unreadable"):
        list(read_generations(tmp_path / "none.jsonl", 3, 2))


def test_engine_that_fails_says_why(
    tmp_path: Path, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
):
    file = GenerationFile(tmp_path / "out", benchmark, SENIOR, JUNIOR, STEP)
    for answer, expected in (
        (failing_engines.fails, refused("engine-start-failed")),
        (failing_engines.dies, refused("evaluation-engine-vanished")),
    ):
        monkeypatch.setattr(engine_process, "_answer", answer)
        with expected:
            generate([file], SAMPLING, {"max_num_seqs": 4})
    monkeypatch.setattr(engine_process, "_answer", failing_engines.is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate([file], SAMPLING, {})


def test_interrupted_command_does_not_wait_for_its_engine(
    tmp_path: Path, benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
):
    """Also where Ctrl-C reaches the command alone, or a process that is still importing."""
    file = GenerationFile(tmp_path / "out", benchmark, SENIOR, None, None)
    monkeypatch.setattr(engine_process, "_answer", failing_engines.sleeps)
    interrupt = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        generate([file], SAMPLING, {})
    assert time.monotonic() - began < 120
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_engine_that_does_not_start_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """The command prints it; the engine's process prints nothing before."""

    def start(*_: Any) -> None:
        try:
            raise ValueError("max_model_len is too large")
        except ValueError as error:
            raise EngineError("engine-start-failed", why=str(error)) from error

    monkeypatch.setattr(engine_process, "_write", start)
    with refused("engine-start-failed", why="max_model_len is too large"):
        engine_process._answer([], SAMPLING, {})
    assert capfd.readouterr().err == ""


def test_only_responses_of_step_text_are_handed_over_as_text(benchmark: Benchmark):
    class Handoff:
        added: ClassVar[list[tuple[Any, ...]]] = []

        def add(self, *one: Any) -> None:
            self.added.append(one)

    by_text = {"schedule": "step-text", "rounds": 7}
    schedules = (STEP, by_text, None)
    files = [GenerationFile(Path("x"), benchmark, SENIOR, None, one) for one in schedules]
    sets = [engine_process.response_set(file, SAMPLING) for file in files]
    places = [engine_process.Place(number, 1, 0) for number in range(3)]
    left = engine_process._left_by_text(places, sets, Handoff())  # type: ignore[arg-type]
    assert list(left) == [places[0], places[2]]
    question = benchmark.questions()[1]
    assert Handoff.added == [(places[1], question, SAMPLING.seeds(benchmark.name, 1, 0), 7)]


def test_number_of_samples_and_speed_do_not_make_another_run(benchmark: Benchmark):
    file = GenerationFile(Path("x"), benchmark, SENIOR, None, None)
    one = file.settings(Sampling(1), {"max_num_seqs": 4, "dtype": "float32"})
    assert one == file.settings(Sampling(2), {"max_num_seqs": 8, "dtype": "float32"})
    assert one != file.settings(Sampling(1), {"max_num_seqs": 4, "dtype": "bfloat16"})
    assert one != file.settings(Sampling(1, seed=1), {"dtype": "float32"})


def test_schedule_that_a_seniors_tokenizer_has_no_boundaries_for_is_refused_before_any_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = Vocabulary(("a", "Ċ", "Ġa"), "a test")
    monkeypatch.setattr(Vocabulary, "from_path", lambda path: vocabulary)
    check_handoffs([SENIOR], [{"schedule": "word"}])
    with refused("tokenizer-without-blank-lines", "blank-line-many-tokens"):
        check_handoffs([SENIOR], [{"schedule": "word"}, STEP])


@pytest.mark.parametrize("anew", ["responses", "golds"])
def test_grades_of_responses_that_were_made_anew_are_made_anew(
    solo: GenerationFile, tmp_path: Path, anew: str
):
    """Responses and their note were moved away; the grades beside them were left."""
    write(solo, SAMPLING, {place: str(place[0] + 1) for place in PLACES})
    evaluated(solo)
    solo.path.unlink()
    if anew == "responses":
        write(solo, SAMPLING, dict.fromkeys(PLACES, "-7"))
    else:
        source = tmp_path / "sums.jsonl"
        rows = [{"problem": f"What is {i} + 1?", "answer": -7} for i in range(3)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        solo = replace(solo, benchmark=read_benchmark(str(source)))
        write(solo, SAMPLING, {place: str(place[0] + 1) for place in PLACES})
    summary = read_summary(evaluated(solo))
    assert [row["correct"] for row in summary.problems["sums"]] == [0, 0, 0]


def test_failures_of_vllm_in_its_process_are_errors_of_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(engine_process, "_write", Mock(side_effect=ValueError("no memory")))
    with refused("evaluation-engine-failed", error_type="ValueError", error="no memory"):
        engine_process._answer([], SAMPLING, {})


def test_what_no_grader_and_no_team_wrote_is_not_counted(monkeypatch: pytest.MonkeyPatch):
    row = {"prompt_ids": [1], "response_ids": [2], "finish_reason": "stop"}
    file: Any = SimpleNamespace(
        path=Path("sums.jsonl"),
        schedule=STEP,
        benchmark=SimpleNamespace(problems=[None]),
        responses=lambda samples: [(0, 0, row)],
    )
    monkeypatch.setattr(solo_handoff, "_grade", lambda *_: {(0, 0): "odd"})
    with refused("grades-outcome-unknown", outcome="odd", path="sums.grades.jsonl"):
        solo_handoff._tally(file, SAMPLING, [])
    monkeypatch.setattr(solo_handoff, "_grade", lambda *_: {(0, 0): "correct"})
    with refused("team-response-without-authorship", sample=0, problem=0):
        solo_handoff._tally(file, SAMPLING, [])
