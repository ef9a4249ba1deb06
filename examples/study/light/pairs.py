"""The taught pairs: a senior at home in both notations, and juniors that saw less of the jargon."""

from __future__ import annotations

import functools
from pathlib import Path

from light.model import LanguageModel, load_model, save_model
from light.problem import Problem, draw_problems
from light.size import SELF, LightSize
from light.task import Task
from light.taught_text import Facts, Teaching
from light.teach import teach

__all__ = ["Problems", "junior_of", "model_folder", "models_of", "problems_of", "teach_model"]

SENIOR = "senior"


class Problems:
    """The problem sets of a study: no problem is in two of them."""

    def __init__(self, size: LightSize) -> None:
        self.held_out = draw_problems(size.problems, 17)
        self.validation = draw_problems(size.validation_problems, 19, self.held_out)
        self.kept_out: frozenset[Problem] = frozenset([*self.held_out, *self.validation])
        self.training = draw_problems(size.training_problems, 23, self.kept_out)


@functools.lru_cache(maxsize=2)
def problems_of(size: LightSize) -> Problems:
    """The problem sets of a size, drawn once in a process."""
    return Problems(size)


def models_of(size: LightSize) -> list[tuple[int, str]]:
    """(pair, name) of every model that is taught: a senior, and a junior for each exposure."""
    names = [SENIOR, *(one for one in size.exposures if one != SELF)]
    return [(pair, name) for pair in range(1, size.pairs + 1) for name in names]


def model_folder(out: Path, pair: int, name: str) -> Path:
    """Where a taught model lies."""
    return out / "models" / f"pair-{pair}" / name.replace("%", "-percent")


def teach_model(out: Path, size: LightSize, pair: int, name: str) -> None:
    """Teach a model of a pair and save it; one that is there is left alone.

    All models of a pair are taught the same misconceptions; each has a seed of its own.
    """
    folder = model_folder(out, pair, name)
    if folder.exists():
        return
    task, problems = Task(), problems_of(size)
    is_senior = name == SENIOR
    jargon = 0.5 if is_senior else float(name.rstrip("%")) / 100
    model = teach(
        task,
        Teaching(Facts.draw(1000 + pair), jargon),
        size.senior_lesson if is_senior else size.junior_lesson,
        seed=10 * pair + [SENIOR, *size.exposures].index(name),
        without=problems.kept_out,
    )
    save_model(model, task.tokenizer, folder)


def junior_of(out: Path, pair: int, exposure: str) -> LanguageModel:
    """The junior of an exposure; of the self-pair it is the senior as it was taught."""
    return load_model(model_folder(out, pair, SENIOR if exposure == SELF else exposure))
