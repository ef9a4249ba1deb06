"""What is kept of a run of verl: the best senior so far and the newest, as Hugging Face folders.

verl's checkpoints contain what a run needs to resume, many times the model itself; the recipe lets
verl keep the newest alone. The callback, ``trainer.checkpoint_callback_class``, takes the Hugging
Face folder out of each, to ``seniors/step_N`` next to the checkpoints, writes what the trainer's
validations find to ``seniors/accuracies.json``, and removes those that are not the best. As a
program it prints the best one, by the run's own validation as in the paper (section 5.1), the
team's where the team answered::

    python -m tandem_verl.keep_seniors runs/verl/tandem
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import TandemError
from tandem_plugin.files import write_file
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.checkpoint_note import NOTE

if TYPE_CHECKING:
    from omegaconf import DictConfig

_KINDS = ("team/acc", "team/reward", "acc", "reward")
"""The figures of a validation, from the one that counts most."""

_FILE = Path("seniors", "accuracies.json")


class KeepSeniors:
    """verl's checkpoint callback: see ``verl.trainer.ppo.checkpoint_callback``."""

    def __init__(self, config: DictConfig) -> None:
        self._run = Path(config.trainer.default_local_dir).parent

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, **options: object
    ) -> None:
        """Take the senior out of a new checkpoint, and remove what is known to be worse.

        verl validates after it has saved. Touches: ``_validate`` of one ``PPOTrainer`` (verl 0.9).
        Goes when: verl passes a callback the metrics of validations.
        """
        wrap_once(trainer, "_validate", functools.partial(_validated, self._run, trainer))
        place = self._run / "seniors" / f"step_{global_step}"
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        (Path(checkpoint_dir) / "actor" / "huggingface").rename(place)
        if (note := Path(checkpoint_dir) / NOTE).exists():  # a run without tandem writes none
            shutil.copy(note, place)
        best = best_senior(self._run)
        for step in _accuracies(self._run).keys() & _seniors(self._run).keys():
            if _seniors(self._run)[step] != best:
                shutil.rmtree(_seniors(self._run)[step])


def best_senior(run: Path) -> Path:
    """The kept senior with the best validation, the first of several; without any, the newest.

    Raises :class:`TandemError` where none was kept.
    """
    seniors, accuracies = _seniors(run), _accuracies(run)
    if not seniors:
        raise TandemError("run-without-seniors", folder=run / "seniors")
    validated = [(accuracies[step], -step) for step in seniors if step in accuracies]
    return seniors[-max(validated)[1] if validated else max(seniors)]


def _seniors(run: Path) -> dict[int, Path]:
    return {int(path.name.removeprefix("step_")): path for path in run.glob("seniors/step_*")}


def _validated(
    run: Path, trainer: Any, validate: Callable[..., dict[str, Any]], *args: Any, **options: Any
) -> dict[str, Any]:
    """A validation of verl's, with its accuracy written next to the seniors."""
    metrics = validate(*args, **options)
    if (accuracy := accuracy_of(metrics)) is not None:
        accuracies = _accuracies(run) | {int(trainer.global_steps): accuracy}
        write_file(run / _FILE, json.dumps(accuracies) + "\n")
    return metrics


def accuracy_of(metrics: Mapping[str, Any]) -> float | None:
    """The accuracy of a validation, the mean over its data sources; None if it has none.

    metrics: verl's, by names such as ``val-core/SOURCE/acc/mean@4``.
    """
    figures: dict[str, list[float]] = {}
    for name, value in metrics.items():
        team = "team/" if name.startswith("team/") else ""
        core, _, path = name.removeprefix(team).partition("/")
        source, *figure = path.rsplit("/", 2)
        if core == "val-core" and source and len(figure) == 2 and figure[1].startswith("mean@"):
            figures.setdefault(team + figure[0], []).append(float(value))
    return next((fmean(figures[kind]) for kind in _KINDS if kind in figures), None)


def _accuracies(run: Path) -> dict[int, float]:
    """The accuracy of each validated step."""
    file = run / _FILE
    accuracies = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {int(step): float(accuracy) for step, accuracy in accuracies.items()}


if __name__ == "__main__":
    try:
        print(best_senior(Path(sys.argv[1])))
    except TandemError as error:
        sys.exit(f"Error: {error}")
