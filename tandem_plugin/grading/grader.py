"""Grading: from a response and its gold answers to a record."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from tandem_plugin.errors import GradingError, shown
from tandem_plugin.grading.equality import AS_WRITTEN, decide, is_copied, is_read
from tandem_plugin.grading.extraction import extract_answer
from tandem_plugin.grading.generated import is_generated, judge
from tandem_plugin.grading.golds import compared, read_golds, readings
from tandem_plugin.grading.outcomes import Grade, GradingLimits
from tandem_plugin.grading.pool import Reply, WorkerPool
from tandem_plugin.grading.spelling import is_readable, nesting, spelled

logger = logging.getLogger(__name__)

_MAX_CHARS = 2_000
"""A longer answer is not read."""
_MAX_DEPTH = 24
"""An answer whose brackets nest deeper is not read."""
_GOLD_RULES = ("gold", "unread_gold")
_BAD_GOLD = (
    "A response could not be graded. %s Responses to such problems have the outcome error and earn "
    "nothing; further ones are counted without a warning."
)


class Grader:
    """Grades responses against gold answers, within limits that no response can exceed.

    Can be used from any thread, event loop, Ray actor, or process, including forked ones. Worker
    processes start when a pair first needs computer algebra.

    Raises :class:`GradingError` if SymPy is not installed.
    """

    def __init__(self, limits: GradingLimits | None = None) -> None:
        self.limits = limits or GradingLimits()
        self._pool = WorkerPool(self.limits)
        self._bad_golds = count()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def deaths(self) -> dict[str, int]:
        """The number of worker processes lost, by cause; planned replacements do not count."""
        return dict(self._pool.deaths)

    def start(self) -> None:
        """Start the workers in advance; otherwise the first symbolic pair waits seconds."""
        self._pool.start()

    def close(self) -> None:
        """Stop the worker processes; a later pair starts them again."""
        self._pool.close()

    def grade(self, response: object, gold: object, prompt: str | None = None) -> Grade:
        """Grade one response by the answer in its last box.

        gold: a string, a number, or a list or array of these: any one is correct, read by
        :func:`~tandem_plugin.grading.golds.read_golds`. One that cannot be read makes the outcome
        ``error``, unless the answer is right; the first is logged as a warning. prompt: the
        question, used to detect an answer that only copies an expression from it. Never raises
        because of the content of a response or a gold.
        """
        began = time.perf_counter()
        grade = _graded(self._pool, response, gold, prompt)
        took = (time.perf_counter() - began) * 1e3
        if grade.outcome == "error" and grade.rule in _GOLD_RULES and next(self._bad_golds) == 0:
            logger.warning(_BAD_GOLD, grade.message)
        return replace(grade, milliseconds=took + grade.milliseconds)

    def submit(self, response: str, gold: object, prompt: str | None = None) -> Future[Grade]:
        """As :meth:`grade`, in a thread: returns at once with a future of the result.

        In a coroutine: ``await asyncio.wrap_future(grader.submit(...))``.
        """
        return self._pool.threads.submit(self.grade, response, gold, prompt)

    def grade_batch(self, pairs: Iterable[tuple[Any, ...]]) -> list[Grade]:
        """Grade (response, gold) or (response, gold, prompt), in order, on all workers."""
        return list(self._pool.threads.map(lambda pair: self.grade(*pair), pairs))


def _graded(pool: WorkerPool, response: object, gold: object, prompt: str | None) -> Grade:
    """The record, with the milliseconds that were spent waiting for a worker, below zero."""
    if not isinstance(response, str):
        return _failed("response", f"A response must be text, not {type(response).__name__}.")
    extracted = extract_answer(response)
    answer = extracted.answer
    golds = read_golds(gold)
    if isinstance(golds, str):
        return _failed("gold", golds, answer)
    if answer is None:
        return Grade("no_answer", None, extracted.finding, 0.0)
    if answer in golds:
        return Grade("correct", answer, "text", 0.0, answer)
    if (rejected := _rejected(answer)) is not None:
        return Grade("incorrect", answer, rejected, 0.0)
    if is_generated(golds[0]):
        return _by_its_scorer(answer, golds[0])
    if any(len(text) > _MAX_CHARS for text in golds):
        return _failed("gold", f"A gold is longer than {_MAX_CHARS} characters.", answer)
    if not spelled(answer):
        return Grade("no_answer", answer, "empty_box", 0.0)
    grade = _compared(pool, answer, golds, prompt)
    if grade.outcome == "incorrect" and (unread := _unread(golds)) is not None:
        message = f"A gold answer cannot be read: {shown(unread)}."
        return replace(grade, outcome="error", rule="unread_gold", message=message)
    return grade


def _rejected(answer: str) -> str | None:
    """The rule by which an answer is wrong without being read, or None."""
    if len(answer) > _MAX_CHARS:
        return "too_long"
    if not is_readable(answer):
        return "unreadable"
    return "too_deep" if nesting(answer) > _MAX_DEPTH else None


def _compared(pool: WorkerPool, answer: str, golds: tuple[str, ...], prompt: str | None) -> Grade:
    pairs = [
        (gold, (spelled(reading), spelled(content)))
        for gold in golds
        for reading, content in compared(gold, answer)
    ]
    decisions = [(gold, pair, decide(*pair)) for gold, pair in pairs]
    equal = [
        (gold, decision.rule) for gold, _, decision in decisions if decision and decision.is_equal
    ]
    as_written = [(gold, rule) for gold, rule in equal if rule in AS_WRITTEN]
    contents = {content for _, (_, content) in pairs}
    if not as_written and prompt and any(is_copied(content, prompt) for content in contents):
        return Grade("copied", answer, "copied", 0.0)
    for gold, rule in as_written or equal:
        return Grade("correct", answer, rule, 0.0, gold)
    undecided = [(gold, pair) for gold, pair, decision in decisions if decision is None]
    if not undecided:
        rules = (
            decision.rule
            for *_, decision in decisions
            if decision and decision.rule != "unread_gold"
        )
        return Grade("incorrect", answer, next(rules, "words" if decisions else "choice"), 0.0)
    return _replied(
        pool.ask([pair for _, pair in undecided]), answer, [gold for gold, _ in undecided]
    )


def _is_read(text: str) -> bool:
    return nesting(text) <= _MAX_DEPTH and is_read(spelled(text))


def _unread(golds: Iterable[str]) -> str | None:
    """The first gold without a known reading, or None."""
    return next((gold for gold in golds if not any(map(_is_read, readings(gold)))), None)


def unread_gold(golds: Sequence[str]) -> str | None:
    """The first of a problem's golds that cannot be read: only its own text is right for it."""
    if golds and is_generated(golds[0]):
        return None
    too_long = (gold for gold in golds if len(gold) > _MAX_CHARS)
    return next(too_long, None) or _unread(golds)


def _replied(reply: Reply, answer: str, golds: list[str]) -> Grade:
    milliseconds = -1e3 * reply.waited
    if reply.status in ("time_limit", "memory_limit", "recursion_limit", "worker_died"):
        return Grade("timeout", answer, reply.status, milliseconds, message=reply.message)
    if reply.status != "decided":
        return Grade("error", answer, reply.status, milliseconds, message=reply.message)
    last = reply.decisions[-1]
    if last.is_equal:
        return Grade("correct", answer, last.rule, milliseconds, golds[len(reply.decisions) - 1])
    return Grade("incorrect", answer, reply.decisions[0].rule, milliseconds)


def _by_its_scorer(answer: str, gold: str) -> Grade:
    try:
        is_right, reference = judge(answer, gold)
    except GradingError:
        raise
    except Exception as error:  # a broken gold, or whatever the library's scorer raises
        return _failed("reasoning_gym", f"{type(error).__name__}: {error}", answer)
    if not is_right:
        return Grade("incorrect", answer, "reasoning_gym", 0.0)
    return Grade("correct", answer, "reasoning_gym", 0.0, reference)


def _failed(rule: str, message: str, answer: str | None = None) -> Grade:
    return Grade("error", answer, rule, 0.0, message=message)


@cache
def default_grader() -> Grader:
    """The shared grader of this process, with the default limits."""
    return Grader()


def grade(response: str, gold: object, prompt: str | None = None) -> Grade:
    """Grade one response with the default grader: :meth:`Grader.grade`."""
    return default_grader().grade(response, gold, prompt)


def grade_batch(pairs: Iterable[tuple[Any, ...]]) -> list[Grade]:
    """Grade pairs with the default grader: :meth:`Grader.grade_batch`."""
    return default_grader().grade_batch(pairs)
