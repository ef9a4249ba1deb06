"""What is kept of a run of verl: the best senior so far and the newest, as Hugging Face folders.

verl's checkpoints contain what a run needs to resume, many times the model itself; the recipe lets
verl keep the newest alone. The callback, ``trainer.checkpoint_callback_class``, takes the Hugging
Face folder out of each, to ``seniors/step_N`` beside the checkpoints, and removes those that a
validation in ``train.log`` says are not the best. As a program it prints the best one, by the run's
own validation as in the paper (section 5.1), the team's where the team answered::

    python -m tandem_verl.keep_seniors runs/verl/tandem
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tandem_plugin.errors import TandemError
from tandem_plugin.training.checkpoint_note import NOTE

if TYPE_CHECKING:
    from omegaconf import DictConfig

_STEP = re.compile(r"(?:^|\s)step:(\d+) - (.*)")
_ACCURACY = re.compile(
    r"((?:team/)?)val-core/(\S+?)/(acc|reward)/mean@\d+:(?:np\.\w+\()?(-?\d[\d.]*(?:e[+-]?\d+)?)"
)


class KeepSeniors:
    """verl's checkpoint callback: see ``verl.trainer.ppo.checkpoint_callback``."""

    def __init__(self, config: DictConfig) -> None:
        self._run = Path(config.trainer.default_local_dir).parent

    def on_save(
        self, trainer: object, global_step: int, checkpoint_dir: str, **more: object
    ) -> None:
        """Take the senior out of a new checkpoint, and remove what is known to be worse."""
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


def _accuracies(run: Path) -> dict[int, float]:
    """The accuracy of each validated step in the log, the mean over the data sources."""
    log = run / "train.log"
    found: dict[str, dict[int, dict[str, float]]] = {}
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    for step, logged in (match.groups() for match in map(_STEP.search, lines) if match):
        for team, source, kind, value in _ACCURACY.findall(logged):
            found.setdefault(team + kind, {}).setdefault(int(step), {})[source] = float(value)
    kinds = (kind for kind in ("team/acc", "team/reward", "acc", "reward") if kind in found)
    validated = found.get(next(kinds, ""), {})
    return {step: fmean(values.values()) for step, values in validated.items()}


if __name__ == "__main__":
    try:
        print(best_senior(Path(sys.argv[1])))
    except TandemError as error:
        sys.exit(f"Error: {error}")
