"""The whole demo without its engines: its stages, and what they keep."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("psutil", reason="psutil is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pair
import run
import stages
from evaluation import GRPO, TANDEM, read_scores
from folder import FolderError, claimed
from train import Training

from tandem_plugin import __version__
from tandem_plugin.cli import main as tandem
from tandem_plugin.lab.evaluation import solo_handoff
from tandem_plugin.lab.evaluation.generation import GenerationFile, Sampling, check_response
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

PROBLEMS = 4


def english(story: pair.Story) -> str:
    """A right solution."""
    return pair.solution(story, {}, replace(pair.JUNIOR, second=0.0), pair.random.Random(0))


def answered(
    files: Sequence[GenerationFile], sampling: Sampling, engine: Mapping[str, Any]
) -> None:
    """In place of an engine: right responses, the same from every senior under every schedule."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files[0].senior.path)
    stories = pair.draw_stories(
        PROBLEMS, run.EVALUATION_SEED, pair.split_numbers(run.HELD_OUT, run.NUMBERS_SEED)[1]
    )
    for file in files:
        with RolloutFile(file.path, file.settings(sampling, engine), check_response) as rows:
            for number, question in enumerate(file.benchmark.questions()):
                response = english(stories[number])
                ids = tokenizer(response).input_ids
                row = {
                    "prompt": question["messages"],
                    "answer": question["golds"],
                    "response": response,
                    "prompt_ids": [1],
                    "response_ids": ids,
                    "authorship": [1] * len(ids),
                    "tandem_seed": 0,
                    "tandem_schedule": dict(file.schedule or {}),
                }
                for sample in range(sampling.samples):
                    if (number, sample) not in rows.done:
                        rows.append(number, sample, row)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the demo in small, without verl and vLLM; ``demo.said`` has what it started."""
    said: list[Any] = []

    def trained(
        model: Path,
        data: Path,
        out: Path,
        training: Any,
        overrides: Sequence[str],
        on_step: Callable[[int, dict[str, float]], None],
    ) -> Path:
        if not (out / "checkpoint").exists():
            said.append((out.name, training.steps, [*overrides]))
            names = (stages.SENIOR_SHARE, stages.JUNIOR_CROSS_ENTROPY, stages.TRAINING_REWARD)
            metrics = dict.fromkeys((*names, "tandem/spans_per_response"), 0.5)
            metrics[run.STEP_SECONDS] = 12.0
            lines = []
            for step in range(1, training.steps + 1):
                on_step(step, metrics)
                lines.append(json.dumps({"step": step, "data": metrics}) + "\n")
            (out / "metrics.jsonl").write_text("".join(lines))
            shutil.copytree(model, out / "checkpoint")
        return out / "checkpoint"

    def in_process(*arguments: object, log: Path, out: Path) -> None:
        said.append([str(argument) for argument in arguments])
        monkeypatch.setattr(sys, "argv", ["tandem", *map(str, arguments)])
        with suppress(SystemExit):
            tandem()

    for name in ("SENIOR", "JUNIOR"):
        monkeypatch.setattr(pair, name, replace(getattr(pair, name), steps=2, batch_size=400))
    monkeypatch.setattr(run, "EVALUATION_PROBLEMS", PROBLEMS)
    monkeypatch.setattr(run, "train", trained)
    monkeypatch.setattr(run, "run_program", in_process)
    monkeypatch.setattr(run, "end_processes", lambda out: None)
    monkeypatch.setattr(solo_handoff, "generate", answered)

    def start(*arguments: str) -> int:
        said.clear()
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
        return run.main()

    start.said = said  # type: ignore[attr-defined]
    return start


def test_demo_goes_through_all_stages_once(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    options = ("--out", str(out), "--steps", "5", "--seed", "5")
    assert demo(*options) == 0
    printed = capsys.readouterr().out
    price = "The price: 5 steps in tandem (1.0 minutes), 2 of GRPO (0.4 minutes)."
    assert price in " ".join(printed.split())
    stages_said = re.findall(
        r"^(.+) \(stage (\d+) of 11, about \d+ min left in all\)", printed, re.M
    )
    assert [int(number) for _, number in stages_said] == [*range(1, 12)]
    assert [name for name, _ in stages_said[:6]] == [
        "Teaching the senior",
        "Teaching the junior",
        "Teaching the reader",
        "Evaluating taught with the junior",
        "Evaluating taught with the reader",
        "Training with verl, GRPO",
    ]
    trainings = [started for started in demo.said if isinstance(started, tuple)]
    assert [training[:2] for training in trainings] == [("grpo", 2), ("tandem", 5)]
    assert trainings[0][2] == []
    assert f"junior='{out / 'models' / 'junior'}'" in " ".join(trainings[1][2])
    assert f"{run.TANDEM_SETTINGS}.alone={run.ALONE}" in trainings[1][2]
    evaluations = [started for started in demo.said if isinstance(started, list)]
    assert len(evaluations) == 6  # three seniors, with the junior and with the reader
    scores = read_scores(out / "scores.jsonl")
    assert {score.trained for score in scores} == {run.TAUGHT, GRPO, TANDEM}
    assert all(score.rates.mean() == 1 for score in scores)  # which all have the same responses
    assert {score.steps for score in scores} == {0, 2, 5}
    for name in ("results.md", "demo.html", "demo.svg", "tandem/rollouts.html"):
        assert (out / name).stat().st_size, name
    table = (out / "results.md").read_text()
    assert demo(*options) == 0
    assert not [started for started in demo.said if isinstance(started, tuple)]
    assert (out / "results.md").read_text() == table


@pytest.mark.parametrize(("steps", "grpo"), [(1, 1), (2, 1), (3, 1), (4, 2), (24, 8), (25, 9)])
def test_grpo_takes_a_third_of_the_steps_and_at_least_one(steps: int, grpo: int) -> None:
    training = replace(run.SIZES, steps=steps)
    demo = run.Demo(Path(), training)
    assert [demo.length(method).steps for method in (GRPO, TANDEM)] == [grpo, steps]


def test_time_left_follows_the_pace_of_the_stages_that_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(stages.time, "monotonic", lambda: now)
    plan = stages.Plan({"a": 60.0, "b": 60.0, "c": 600.0, "d": 60.0})
    plan.begin("a")
    now = 1.0  # finished before
    plan.begin("b")
    now = 121.0  # twice as long
    plan.begin("c")
    now = 181.0  # a tenth of it
    plan.begin("d")
    left = re.findall(r"about (\d+) min left", capsys.readouterr().out)
    assert left == ["13", "12", "22", "2"]


SELF_PAIR = {"real": False, "solo": False, **asdict(Training(steps=16)), "version": __version__}
VERSION_BEFORE = {"pair": [0.3, 0.2], **asdict(run.SIZES), "version": "0.0.9"}
"""What ``demo.json`` has of a self-pair's demo, and had of the demo before it named its lessons."""


@pytest.mark.parametrize(
    ("options", "named"),
    [(SELF_PAIR, "of another kind of demo, or of the version before: only one of the two has"),
     (VERSION_BEFORE, "the version before: only one of the two has alone, facts, junior, lengths"),
     ({}, "only one of the two has")],
    ids=["self-pair", "version before", "nothing noted"],
)  # fmt: skip
def test_folder_of_another_demo_is_named_and_left(
    demo: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    named: str,
) -> None:
    before = json.dumps(options)
    (tmp_path / "demo.json").write_text(before)
    assert demo("--out", str(tmp_path)) == 1
    said = capsys.readouterr().out
    assert named in said
    assert "Give this one another folder, or remove that one." in said
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["demo.json"]
    assert (tmp_path / "demo.json").read_text() == before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"version": "0.0.9"}, "version=0.0.9 (here "),
        ({"lengths": [8, 16]}, "lengths=[8, 16] (here [8, 24])"),
        ({}, "junior={'hidden_size': 48, 'layers': 2"),
    ],
    ids=["version", "lengths", "lesson"],
)
def test_same_demo_of_another_version_or_lesson_is_not_resumed(
    demo: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    named: str,
) -> None:
    options = ("--out", str(tmp_path / "demo"), "--steps", "1")
    begun = run.Demo(tmp_path / "demo", replace(run.SIZES, steps=1))
    with claimed(begun.out, begun.options):
        pass
    note = begun.out / "demo.json"
    if changed:
        note.write_text(json.dumps(json.loads(note.read_text()) | changed))
    else:
        monkeypatch.setattr(pair, "JUNIOR", replace(pair.JUNIOR, second=0.02))
    assert demo(*options) == 1
    said = capsys.readouterr().out
    assert named in said
    assert "is the folder of another demo" in said
    assert not demo.said


def test_full_disk_is_named_and_the_demo_resumes(
    demo: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ("--out", str(tmp_path / "demo"), "--steps", "1")
    table = tmp_path / "demo" / "results.md"
    monkeypatch.setattr(stages, "LEAST_FREE", 1 << 62)
    begun = run.Demo(tmp_path / "demo", replace(run.SIZES, steps=1))
    with claimed(begun.out, begun.options):
        table.symlink_to("/dev/full")
    assert demo(*options) == 1
    said = capsys.readouterr().out
    assert "The demo stopped." in said
    assert "No space left on device" in said
    assert "Free some space; the same command then resumes the demo." in said
    table.unlink()
    assert demo(*options) == 0
    assert not [started for started in demo.said if isinstance(started, tuple)]
    assert table.read_text().startswith("| % |")


def test_model_without_room_is_named_and_not_taken_for_a_taught_one(
    demo: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resource

    from transformers import Qwen3ForCausalLM

    save = Qwen3ForCausalLM.save_pretrained
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save_without_room(model: Any, folder: Path) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            save(model, folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(Qwen3ForCausalLM, "save_pretrained", save_without_room)
    assert demo("--out", str(tmp_path / "demo"), "--steps", "1") == 1
    said = capsys.readouterr().out
    assert "File too large" in said
    assert "Free some space" not in said  # this disk has room
    assert [path.name for path in (tmp_path / "demo" / "models").iterdir()] == ["senior.unfinished"]


def test_other_options_in_a_demos_folder_are_refused(tmp_path: Path) -> None:
    with claimed(tmp_path, {"pair": [0.3, 0.2], "seed": 7}):
        pass
    with (
        pytest.raises(FolderError, match=r"seed=7 \(here 8\)"),
        claimed(tmp_path, {"pair": [0.3, 0.2], "seed": 8}),
    ):
        pytest.fail("another demo's folder was claimed")
