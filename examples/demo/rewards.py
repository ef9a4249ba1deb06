"""The verifiable reward: 1 when the last ``\\boxed{}`` of a response holds the right answer.

verl loads this file by its path (``reward.custom_reward_function.path``), so it imports nothing
of the demo. Text written by the model is compared, never evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

_BOX = "\\boxed{"
_LONGEST_NUMBER = 40


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """1.0 when the response's boxed answer equals one of the golds, else 0.0."""
    boxed = last_boxed(solution_str)
    if boxed is None:
        return 0.0
    return float(any(same_answer(boxed, str(gold)) for gold in _golds(ground_truth)))


def last_boxed(text: str) -> str | None:
    """The content of the last ``\\boxed{...}`` whose braces balance, or None."""
    end = len(text)
    while (start := text.rfind(_BOX, 0, end)) >= 0:
        content = _balanced(text[start + len(_BOX) :])
        if content is not None:
            return content
        end = start
    return None


def same_answer(left: str, right: str) -> bool:
    """Equal as normalised text, or as numbers (``27.0`` is ``27``, ``1/2`` is ``0.5``)."""
    left, right = normalise(left), normalise(right)
    if left == right:
        return bool(left)
    number = as_number(left)
    return number is not None and number == as_number(right)


def normalise(answer: str) -> str:
    """The answer without what does not change its meaning: dollars, spaces, a final stop."""
    for noise in ("$", "\\!", "\\,", "\\;", "\\left", "\\right", "\n", " "):
        answer = answer.replace(noise, "")
    return answer.rstrip(".").replace("\\dfrac", "\\frac")


def as_number(answer: str) -> Fraction | None:
    """The number an answer spells (``1,200``, ``27.0``, ``3/4``, ``\\frac{3}{4}``), or None."""
    if answer.startswith("\\frac{") and answer.endswith("}"):
        answer = answer.removeprefix("\\frac{").removesuffix("}").replace("}{", "/")
    if len(answer) > _LONGEST_NUMBER or "e" in answer.lower():  # 1e999999999 is a long number
        return None
    try:
        return Fraction(answer.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def _balanced(text: str) -> str | None:
    """The text up to the brace that closes one opened just before it."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[:place]
    return None


def _golds(ground_truth: Any) -> Iterable[Any]:
    """One gold, or several in a list, tuple or array."""
    if hasattr(ground_truth, "tolist"):
        ground_truth = ground_truth.tolist()
    return ground_truth if isinstance(ground_truth, list | tuple) else (ground_truth,)
