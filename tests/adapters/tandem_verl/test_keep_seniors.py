"""Which seniors of a run of verl are kept, and which of them is the best."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from refused import refused

from tandem_verl.keep_seniors import KeepSeniors, accuracy_of, best_senior


class Trainer:
    """verl's, whose validations find what they are told."""

    def __init__(self) -> None:
        self.global_steps, self.metrics = 0, dict[str, float]()

    def _validate(self) -> dict[str, float]:
        return self.metrics


def train(run: Path, accuracies: dict[int, float | None]) -> None:
    """As verl does: a checkpoint, the callback, and then the validation of the same step."""
    config = SimpleNamespace(trainer=SimpleNamespace(default_local_dir=run / "checkpoints"))
    callback, trainer = KeepSeniors(config), Trainer()
    for step, accuracy in accuracies.items():
        trainer.global_steps = step
        checkpoint = run / "checkpoints" / f"global_step_{step}"
        (checkpoint / "actor" / "huggingface").mkdir(parents=True)
        (checkpoint / "actor" / "huggingface" / "config.json").write_text(str(step))
        callback.on_save(trainer, global_step=step, checkpoint_dir=str(checkpoint))
        if accuracy is not None:
            trainer.metrics = {"team/val-core/sums/acc/mean@4": accuracy}
            assert trainer._validate() == trainer.metrics


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("seniors/step_*"))


def test_the_best_senior_and_those_not_validated_yet_are_kept(tmp_path: Path) -> None:
    train(tmp_path, {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.5, 5: None})
    assert kept(tmp_path) == ["step_2", "step_5"]
    assert best_senior(tmp_path) == tmp_path / "seniors" / "step_2"
    assert (tmp_path / "seniors" / "step_2" / "config.json").read_text() == "2"


def test_a_better_senior_takes_the_place_of_the_best(tmp_path: Path) -> None:
    train(tmp_path, {1: 0.25, 2: 0.5, 3: None})
    assert kept(tmp_path) == ["step_2", "step_3"]


def test_without_validation_all_are_kept_and_the_newest_is_taken(tmp_path: Path) -> None:
    train(tmp_path, {9: None, 10: None})
    assert kept(tmp_path) == ["step_10", "step_9"]
    assert best_senior(tmp_path).name == "step_10"


def test_a_run_that_kept_none_is_told(tmp_path: Path) -> None:
    with refused("run-without-seniors", folder=str(tmp_path / "seniors")):
        best_senior(tmp_path)


def test_resumed_run_knows_what_was_validated_before(tmp_path: Path) -> None:
    train(tmp_path, {1: 0.75, 2: 0.5})
    train(tmp_path, {3: 0.25, 4: None})
    assert kept(tmp_path) == ["step_1", "step_4"]


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [
        ({"val-core/a/b/acc/mean@1": 0.5, "val-core/c/acc/mean@1": 1.0}, 0.75),
        ({"val-core/a/acc/mean@1": 0.5, "team/val-core/a/acc/mean@1": 1.0}, 1.0),
        ({"val-core/a/reward/mean@4": 0.5, "val-core/a/acc/mean@4": 0.25}, 0.25),
        ({"val-core/a/acc/best@4/mean": 1.0, "val-aux/a/acc/mean@4": 1.0, "other": 1.0}, None),
    ],
)
def test_accuracy_is_the_teams_mean_over_sources(
    metrics: dict[str, float], accuracy: float | None
) -> None:
    assert accuracy_of(metrics) == accuracy
