"""What the recipes keep of a run, and which problems a run of OpenRLHF sees."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import module_of

from tandem_plugin import TandemError

EXAMPLES = Path(__file__).parents[1] / "examples"


def module(name: str) -> Any:
    return module_of(EXAMPLES / name)


@pytest.fixture
def keeping() -> Any:
    return module("verl/keep_seniors.py")


def train(keeping: Any, run: Path, accuracies: dict[int, float | None]) -> None:
    """As verl does: a checkpoint, the callback, and then the validation of the same step."""
    config = SimpleNamespace(trainer=SimpleNamespace(default_local_dir=run / "checkpoints"))
    callback = keeping.KeepSeniors(config)
    for step, accuracy in accuracies.items():
        checkpoint = run / "checkpoints" / f"global_step_{step}"
        (checkpoint / "actor" / "huggingface").mkdir(parents=True)
        (checkpoint / "actor" / "huggingface" / "config.json").write_text(str(step))
        callback.on_save(None, global_step=step, checkpoint_dir=str(checkpoint), async_save=False)
        if accuracy is not None:
            with (run / "train.log").open("a") as log:
                log.write(f"step:{step} - team/val-core/sums/acc/mean@4:{accuracy}\n")


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("seniors/*"))


def test_the_best_senior_and_those_not_validated_yet_are_kept(keeping: Any, tmp_path: Path) -> None:
    train(keeping, tmp_path, {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.5, 5: None})
    assert kept(tmp_path) == ["step_2", "step_5"]
    assert keeping.best_senior(tmp_path) == tmp_path / "seniors" / "step_2"
    assert (tmp_path / "seniors" / "step_2" / "config.json").read_text() == "2"


def test_a_better_senior_takes_the_place_of_the_best(keeping: Any, tmp_path: Path) -> None:
    train(keeping, tmp_path, {1: 0.25, 2: 0.5, 3: None})
    assert kept(tmp_path) == ["step_2", "step_3"]


def test_without_validation_all_are_kept_and_the_newest_is_taken(
    keeping: Any, tmp_path: Path
) -> None:
    train(keeping, tmp_path, {9: None, 10: None})
    assert kept(tmp_path) == ["step_10", "step_9"]
    assert keeping.best_senior(tmp_path).name == "step_10"


def test_a_run_that_kept_none_is_told(keeping: Any, tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"holds no senior: train with trainer\.save_freq"):
        keeping.best_senior(tmp_path)


def test_a_run_of_openrlhf_sees_each_problem_as_often_as_any_other() -> None:
    choose = module("openrlhf/choose_problems.py")
    lines = [str(i) for i in range(10)]
    found = choose.chosen(lines, 24)
    assert sorted(found[:10]) == sorted(found[10:20]) == lines
    assert found[:10] != found[10:20]
    assert set(Counter(found).values()) == {2, 3}
    assert found == choose.chosen(lines, 24)
    assert len(set(choose.chosen(lines, 4))) == 4


@pytest.mark.parametrize("framework", ["verl", "openrlhf"])
def test_a_finished_run_prints_its_next_commands_again(framework: str, tmp_path: Path) -> None:
    out = tmp_path / "runs" / framework / "trl"
    out.mkdir(parents=True)
    (out / "done").write_text("250\n")
    done = subprocess.run(
        [str(EXAMPLES / framework / "train.sh"), "trl"],
        cwd=tmp_path,
        env=os.environ | {"MODEL": "a model", "EVAL": "--n 8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"runs/{framework}/trl has all of its 250 steps" in done.stdout
    view, evaluate, report = [line.strip() for line in done.stdout.splitlines()[-3:]]
    assert view.startswith(f"tandem view runs/{framework}/trl/rollouts --tokenizer a\\ model")
    assert evaluate.endswith("--n 8")
    assert report.startswith(f"tandem report runs/{framework}/trl/results")
