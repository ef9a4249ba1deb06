"""The whole demo without its engines: its stages, and what they keep."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("psutil", reason="psutil is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pair
import run
import stages
from evaluation import GRPO, TANDEM, read_scores
from folder import FolderError

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


def test_demo_goes_through_all_stages_once(demo: Any, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    options = ("--out", str(out), "--steps", "3", "--seed", "5")
    assert demo(*options) == 0
    trainings = [started for started in demo.said if isinstance(started, tuple)]
    assert [training[:2] for training in trainings] == [("grpo", 2), ("tandem", 3)]
    assert trainings[0][2] == []
    assert f"junior='{out / 'models' / 'junior'}'" in " ".join(trainings[1][2])
    evaluations = [started for started in demo.said if isinstance(started, list)]
    assert len(evaluations) == 6  # three seniors, with the junior and with the reader
    scores = read_scores(out / "scores.jsonl")
    assert {score.trained for score in scores} == {run.TAUGHT, GRPO, TANDEM}
    assert all(score.rates.mean() == 1 for score in scores)  # which all have the same responses
    assert {score.steps for score in scores} == {0, 2, 3}
    for name in ("results.md", "demo.html", "demo.svg", "tandem/rollouts.html"):
        assert (out / name).stat().st_size, name
    table = (out / "results.md").read_text()
    assert demo(*options) == 0
    assert not [started for started in demo.said if isinstance(started, tuple)]
    assert (out / "results.md").read_text() == table


def test_folder_of_the_version_before_is_named_and_left(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.dumps({"real": False, "solo": False, "steps": 15, "version": "0.1.0"})
    (tmp_path / "demo.json").write_text(before)
    assert demo("--out", str(tmp_path)) == 1
    assert "or of the version before: only one of the two has" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if path.name[0] != "."] == ["demo.json"]
    assert (tmp_path / "demo.json").read_text() == before


def test_other_options_in_a_demos_folder_are_refused(tmp_path: Path) -> None:
    from folder import claimed

    with claimed(tmp_path, {"pair": [0.3, 0.2], "seed": 7}):
        pass
    with (
        pytest.raises(FolderError, match=r"seed=7 \(here 8\)"),
        claimed(tmp_path, {"pair": [0.3, 0.2], "seed": 8}),
    ):
        pytest.fail("another demo's folder was claimed")
