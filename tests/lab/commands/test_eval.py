"""Which models ``tandem eval`` evaluates in each part, in which order, and what it rejects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands import eval as commands
from tandem_plugin.lab.evaluation import drift, solo_handoff
from tandem_plugin.lab.evaluation.inputs import Checkpoint


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is called instead of engines and models: the part, then what differs from the others."""
    found: list[tuple[Any, ...]] = []

    def solo(out: Path, senior: Checkpoint, benchmarks: Any, sampling: Any, *_: Any) -> Path:
        found.append(("solo", senior.name, sampling.samples))
        return out / "solo" / senior.name

    def handoff(out: Path, senior: Any, junior: Any, _: Any, __: Any, sampling: Any, *___: Any):
        found.append(("handoff", senior.name, junior.name, sampling.samples))
        return [out / "handoff"]

    def legibility(out: Path, senior: Any, juniors: Any, read: int, dtype: str, _: Any):
        found.append(("legibility", senior.name, [one.name for one in juniors], read, dtype))
        return [out / "legibility"]

    def of_drift(out: Path, senior: str, base: str, frequent: int) -> Path:
        found.append(("drift", senior, base, frequent))
        return out / "drift"

    reading = ModuleType("legibility")
    reading.run_legibility = legibility  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tandem_plugin.lab.evaluation.legibility", reading)
    monkeypatch.setattr(drift, "run_drift", of_drift)
    monkeypatch.setattr(solo_handoff, "run_solo", solo)
    monkeypatch.setattr(solo_handoff, "run_handoff", handoff)
    for check in ("check_tokenizers", "check_handoffs"):
        monkeypatch.setattr(
            solo_handoff, check, lambda models, *_, name=check: found.append((name, len(models)))
        )
    monkeypatch.setattr(commands, "_benchmarks", lambda *_: [])
    monkeypatch.setattr(
        commands,
        "_checkpoints",
        lambda given: [Checkpoint(one.partition("=")[0], one, "f") for one in given],
    )
    monkeypatch.setattr(commands, "_show", lambda written, *_: found.append(("show", len(written))))
    return found


MODELS = [
    *("--senior", "a=1", "--senior", "base=2", "--junior", "base=2", "--junior", "small=3"),
    *("--benchmark", "sums", "--out", "results"),
]


def test_all_parts_come_in_order_and_the_first_junior_answers_once(calls: list[tuple[Any, ...]]):
    more = ["--n", "4", "--team-n", "3", "--read", "2", "--frequent", "5", "--dtype", "float32"]
    done = CliRunner().invoke(app, ["eval", "all", *MODELS, *more])
    assert done.exit_code == 0, done.output
    assert calls == [
        ("check_tokenizers", 3),
        ("check_handoffs", 2),
        ("solo", "base", 4),
        ("solo", "a", 4),
        *[
            ("handoff", senior, junior, 3)
            for senior in ("a", "base")
            for junior in ("base", "small")
        ],
        *[("legibility", senior, ["base", "small"], 2, "float32") for senior in ("a", "base")],
        *[("drift", senior, "base", 5) for senior in ("a", "base")],
        ("show", 10),
    ]


@pytest.mark.parametrize(
    ("part", "options", "expected"),
    [
        ("solo", ["--senior", "a=1", "--benchmark", "b"], [("check_tokenizers", 1)]),
        (
            "handoff",
            ["--senior", "a=1", "--junior", "j=2", "--benchmark", "b"],
            [("check_handoffs", 1)],
        ),
        ("legibility", ["--senior", "a=1", "--junior", "j=2"], []),
        ("drift", ["--senior", "a", "--junior", "j"], []),
    ],
)
def test_a_part_alone_evaluates_nothing_else(
    calls: list[tuple[Any, ...]], part: str, options: list[str], expected: list[tuple[Any, ...]]
):
    done = CliRunner().invoke(app, ["eval", part, *options, "--out", "results"])
    assert done.exit_code == 0, done.output
    assert calls[: len(expected)] == expected
    assert [one[:2] for one in calls[len(expected) :]] == [(part, "a"), ("show", 1)]


def test_interrupted_evaluation_says_how_to_go_on(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(solo_handoff, "run_handoff", interrupted)
    done = CliRunner().invoke(app, ["eval", "all", *MODELS])
    assert (done.exit_code, "Run the same command again" in done.output) == (130, True)
    assert calls[-1] == ("solo", "a", 32)


def test_one_name_stands_for_one_model_and_one_benchmark(tmp_path: Path) -> None:
    problems = tmp_path / "sums.jsonl"
    problems.write_text(json.dumps({"problem": "1+1?", "answer": "2"}) + "\n")
    senior = tmp_path / "senior"
    senior.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (senior / name).write_text("{}")
    (senior / "model.safetensors").write_bytes(b"w")
    given = ("--senior", senior, "--benchmark", problems, "--benchmark", problems)
    command = ["eval", "solo", *map(str, given), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "--benchmark uses the name 'sums' twice" in result.stderr
    assert "[option-name-used-twice]" in result.stderr


@pytest.mark.parametrize("field", ["problem=q", "answer=final"])
def test_fields_are_those_of_the_benchmarks_that_are_no_named_sets(tmp_path: Path, field: str):
    problems = tmp_path / "sums.jsonl"
    problems.write_text(json.dumps({"q": "1+1?", "problem": "1+1?", "final": 3, "answer": 2}))
    options = ["--senior", str(tmp_path), "--out", str(tmp_path / "out"), "--field", field]
    done = CliRunner().invoke(app, ["eval", "solo", *options, "--benchmark", "mine=aime24"])
    assert (done.exit_code, "[layout-without-effect]" in done.stderr) == (1, True), done.output
    done = CliRunner().invoke(app, ["eval", "solo", *options, "--benchmark", f"x={problems}"])
    assert (done.exit_code, "[evaluation-not-checkpoint]" in done.stderr) == (1, True), done.output
    unread = {"problem=q": "problem (1 rows), final (1 rows)"}
    assert f"x: not in the prompts: {unread.get(field, 'q (1 rows), answer (1 rows)')}" in (
        done.stderr
    )
    done = CliRunner().invoke(app, ["eval", "drift", *options, "--junior", "j"])
    assert (done.exit_code, "--field has no effect on drift" in done.stderr) == (2, True)


def test_a_handover_is_evaluated_in_both_directions_beside_the_teams_schedule(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        solo_handoff, "run_handoff", lambda _, __, ___, schedules, *____: asked.extend(schedules)
        or [Path("x")],
    )  # fmt: skip
    options = [*MODELS[2:], "--handover", "64", "--handover", "128", "--handover", "64"]
    done = CliRunner().invoke(
        app, ["eval", "handoff", "--senior", "a=1", *options[:2], *options[4:]]
    )
    assert done.exit_code == 0, done.output
    chosen = [(one["schedule"], one["first"], one.get("after")) for one in asked]
    pairs = [("handover", first, place) for place in (64, 128) for first in ("senior", "junior")]
    assert chosen == [("step", "senior", None), *pairs] * (len(chosen) // 5)
    assert asked
    wrong = CliRunner().invoke(app, ["eval", "solo", "--senior", "a=1", "--benchmark", "b",
                                     "--out", "o", "--handover", "3"])  # fmt: skip
    assert "--handover has no effect on solo" in wrong.output
