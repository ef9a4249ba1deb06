"""A reward of one's own: a plain function, the same for every trainer.

::

    def score(response, problem):                # one response
        return float(problem["gold"] in response)

    def score(responses: list, problems: list):  # all of a batch at once
        return [0.0 for response in responses]

A problem is a mapping: ``prompt``, its text; ``gold``, its right answer, None in a row without one;
and what else its row has. Each trainer calls the functions through a module of this folder; which
ones stands in ``TANDEM_REWARD``, or for verl in the command.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tandem_plugin.errors import GradingError

VARIABLE = "TANDEM_REWARD"
"""``FILE:FUNCTION``, or a JSON object with the weight of each."""


@dataclass(frozen=True, slots=True)
class OwnReward:
    """A function in a file."""

    file: Path
    function: str

    @classmethod
    def of(cls, text: str) -> OwnReward:
        """The reward of ``FILE:FUNCTION``."""
        file, _, function = text.rpartition(":")
        return cls(Path(file), function)

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"

    def check(self) -> None:
        """Raise :class:`GradingError` unless the file can be imported and has the function.

        Also for one that does not take a response and a problem.
        """
        function = self._function()
        try:
            signature = inspect.signature(function)
        except ValueError:  # compiled: it has none to read
            return
        try:
            signature.bind(None, None)
        except TypeError as error:
            raise GradingError(
                "reward-function-parameters", reward=self, signature=str(signature)
            ) from error

    def scores(
        self, responses: Sequence[str], problems: Sequence[Mapping[str, Any]]
    ) -> list[float]:
        """The reward of each response to its problem.

        Raises :class:`GradingError` where the function raises, for a reward that is no finite
        number, and for a list of the wrong length.
        """
        if not _takes_lists(self._function()):
            pairs = zip(responses, problems, strict=True)
            scores = [self._call(response, problem, problem) for response, problem in pairs]
        else:
            returned = self._call(list(responses), list(problems), problems[0])
            scores = list(returned) if _is_listed(returned) else []
            if len(scores) != len(responses):
                raise GradingError(
                    "reward-count-differs",
                    reward=self,
                    count=len(scores) if _is_listed(returned) else returned,
                    responses=len(responses),
                    row=_row(problems[min(len(scores), len(problems) - 1)]),
                )
        pairs = zip(scores, problems, strict=True)
        return [_finite(self, score, problem) for score, problem in pairs]

    def _call(self, responses: Any, problems: Any, first: Mapping[str, Any]) -> Any:
        """What the function returns; first: the problem that names the row of an exception."""
        try:
            return self._function()(responses, problems)
        except Exception as error:  # whatever a user's function raises
            reason = f"{type(error).__name__}: {error}"
            raise GradingError(
                "reward-function-failed", reward=self, reason=reason, row=_row(first)
            ) from error

    def _function(self) -> Callable[..., Any]:
        module = _module(self.file)
        function = getattr(module, self.function, None)
        if not callable(function):
            names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
            raise GradingError(
                "reward-function-missing",
                file=self.file,
                function=self.function,
                known=", ".join(names) or "none",
            )
        return function  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class OwnRewards:
    """Several functions, no two of one name: a response's reward is their weighted sum."""

    rewards: tuple[OwnReward, ...]
    weights: tuple[float, ...]

    @classmethod
    @cache
    def of(cls, text: str) -> OwnRewards:
        """Those of ``FILE:FUNCTION``, or of a JSON object with the weight of each."""
        weights = json.loads(text) if text.startswith("{") else {text: 1.0}
        return cls(tuple(map(OwnReward.of, weights)), tuple(weights.values()))

    def __str__(self) -> str:
        return json.dumps(dict(zip(map(str, self.rewards), self.weights, strict=True)))

    def scores(
        self, responses: Sequence[str], problems: Sequence[Mapping[str, Any]]
    ) -> tuple[list[float], dict[str, list[float]]]:
        """The reward of each response, and what each function gave it, by the function's name.

        Raises :class:`GradingError` as :meth:`OwnReward.scores`.
        """
        parts = {reward.function: reward.scores(responses, problems) for reward in self.rewards}
        sums = (
            sum(weight * score for weight, score in zip(self.weights, scores, strict=True))
            for scores in zip(*parts.values(), strict=True)
        )
        pairs = zip(sums, problems, strict=True)
        return [_finite(self, score, problem) for score, problem in pairs], parts


def own_rewards() -> OwnRewards:
    """Those of ``TANDEM_REWARD``; :class:`GradingError` where it is not set."""
    text = os.environ.get(VARIABLE)
    if not text:
        raise GradingError("reward-variable-missing", variable=VARIABLE)
    return OwnRewards.of(text)


def problem_of(prompt: str | None, gold: Any, columns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The mapping that a function gets; columns: the other fields of its row."""
    return {**(columns or {}), "prompt": prompt, "gold": gold}


@cache
def _module(file: Path) -> ModuleType:
    """The user's file as a module; it can import what is in its folder."""
    spec = importlib.util.spec_from_file_location(f"tandem_own_reward_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise GradingError("reward-file-broken", file=file, reason="it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise GradingError("reward-file-broken", file=file, reason=reason) from error
    return module


def _takes_lists(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is a list, by its annotation or, without one, by its name."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    kind = parameters[0].annotation
    if kind is inspect.Parameter.empty:
        return parameters[0].name in ("responses", "completions")
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return text.rpartition(".")[2].lower().startswith(("list", "sequence")) or text.startswith(
        ("list[", "Sequence[", "typing.List", "collections.abc.Sequence")
    )


def _is_listed(value: Any) -> bool:
    """Whether a value has an order and a length: a list or an array, no set."""
    is_sequence = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_sequence and not isinstance(value, str | bytes | Mapping)


def _finite(reward: object, score: Any, problem: Mapping[str, Any]) -> float:
    """A reward as a number; :class:`GradingError` for None, a text, NaN and infinity."""
    try:
        number = math.nan if isinstance(score, str | bytes) else float(score)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise GradingError("reward-not-number", reward=reward, value=score, row=_row(problem))
    return number


def _row(problem: Mapping[str, Any]) -> str:
    """How a row is named: its number if it has one, and how its prompt begins."""
    number = problem.get("index", problem.get("row"))
    text = " ".join(str(problem.get("prompt") or "").split())[:60]
    return f"{'' if number is None else f'{number}: '}{text!r}"
