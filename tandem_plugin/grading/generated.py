"""Problems that reasoning-gym generates, graded by its own scorers.

The gold of such a problem is its entry as JSON text, which every trainer carries like any other.
Only scorers that compare text are used: several of the library's others evaluate what a response
says. Source: https://github.com/open-thought/reasoning-gym
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from tandem_plugin.errors import DataError, GradingError

__all__ = ["check_task", "gold_of", "is_generated", "judge"]

_MARK = '{"reasoning_gym": '

_READ = frozenset(
    {
        "chain_sum",
        "family_relationships",
        "fraction_simplification",
        "letter_jumble",
        "needle_haystack",
        "number_format",
        "prime_factorization",
        "products",
        "sentence_reordering",
        "spell_backward",
        "word_sorting",
    }
)
"""Tasks with a scorer of their own that was read, in 0.1.25: it compares, and evaluates nothing.
The library's common scorer, which most others have, compares text as well."""


def check_task(name: str) -> None:
    """Raise :class:`DataError` for a task that there is not, or whose scorer is not used here.

    Raises :class:`GradingError` where reasoning-gym is not installed.
    """
    _require()
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    def compares(task: str) -> bool:
        return task in _READ or DATASETS[task][0].score_answer is ProceduralDataset.score_answer

    if name not in DATASETS or not compares(name):
        known = ", ".join(sorted(filter(compares, DATASETS)))
        raise DataError("TP728", name=name, known=known)


def gold_of(name: str, entry: Mapping[str, Any]) -> str:
    """The gold of an entry of a task: JSON text with its answer and what its scorer looks at."""
    kept = {"answer": entry["answer"], "metadata": dict(entry["metadata"])}
    return json.dumps({"reasoning_gym": name, **kept}, ensure_ascii=False)


def is_generated(gold: str) -> bool:
    """Whether a gold is what :func:`gold_of` gives."""
    return gold.startswith(_MARK)


def judge(answer: str, gold: str) -> tuple[bool, str]:
    """Whether the task's own scorer gives an answer all of its points, and the reference answer.

    Partial points count as wrong: a reward here is right or wrong. Raises :class:`DataError` for a
    gold that is broken, :class:`GradingError` where reasoning-gym is not installed, and what the
    scorer raises.
    """
    try:
        entry = json.loads(gold)
        name, reference = entry["reasoning_gym"], str(entry["answer"])
    except (ValueError, KeyError) as error:
        raise DataError("TP729", error=error) from error
    return float(_scorer(name).score_answer(answer, entry)) >= 1.0, reference


@cache
def _scorer(name: str) -> Any:
    check_task(name)
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=1, seed=0)


def _require() -> None:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise GradingError("TP805")
