"""Grading: turns a response and its gold answer into a record."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.comparison import Decision
from tandem_plugin.grading.equality import AS_WRITTEN, decide, is_copied
from tandem_plugin.grading.extraction import extract_answer
from tandem_plugin.grading.generated import is_generated, judge
from tandem_plugin.grading.grade import Grade, GradingLimits
from tandem_plugin.grading.pool import Reply, WorkerPool
from tandem_plugin.grading.reference_answers import read_golds
from tandem_plugin.grading.spelling import is_readable, nesting, spelled

__all__ = ["Grader", "default_grader", "grade", "grade_async", "grade_batch"]


class Grader:
    """Grades responses against gold answers, within limits that no response can exceed.

    Can be used from any thread, event loop, Ray actor, or process, including forked ones. Worker
    processes start when a pair first needs computer algebra.

    lenient: also solve equations and inequalities in one unknown that the response left unsolved.

    Raises :class:`GradingError` if SymPy is not installed, and :class:`ConfigError` for limits that
    are too small.
    """

    def __init__(self, limits: GradingLimits | None = None, lenient: bool = False) -> None:
        self.limits = limits or GradingLimits()
        self.lenient = lenient
        self._pool = WorkerPool(self.limits)
        self._threads: ThreadPoolExecutor | None = None
        self._threads_lock = threading.Lock()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def deaths(self) -> dict[str, int]:
        """The number of worker processes lost, by cause."""
        return self._pool.deaths

    def start(self) -> None:
        """Start the workers in advance; otherwise the first symbolic pair waits seconds."""
        self._pool.start()

    def close(self) -> None:
        """Stop the worker processes; a later pair starts them again."""
        with self._threads_lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self._pool.close()

    def grade(self, response: object, gold: object, prompt: str | None = None) -> Grade:
        """Grade one response by the answer in its last box.

        gold: a string, a number, or a list or array of these, any one of which is correct. If a
        gold contains a box, the content of the box counts. prompt: the question, used to detect an
        answer that only copies an expression from it. Never raises because of the content of a
        response or a gold.
        """
        began = time.perf_counter()
        if not isinstance(response, str):
            return _failed(began, "response", f"A response must be text, not {_kind(response)}.")
        found = extract_answer(response, self.limits.window_chars)
        if found.answer is None:
            return Grade("no_answer", None, found.finding, _since(began))
        return self._grade(found.answer, gold, began, prompt)

    async def grade_async(self, response: str, gold: object, prompt: str | None = None) -> Grade:
        """As :meth:`grade`, without blocking the event loop."""
        return await asyncio.wrap_future(self.submit(response, gold, prompt))

    def submit(self, response: str, gold: object, prompt: str | None = None) -> Future[Grade]:
        """As :meth:`grade`, in a thread: returns at once with a future of the result."""
        return self._executor().submit(self.grade, response, gold, prompt)

    def grade_batch(self, pairs: Iterable[tuple[Any, ...]], progress: bool = False) -> list[Grade]:
        """Grade (response, gold) or (response, gold, prompt), in order, on all workers.

        progress: show progress on stderr.
        """
        from tandem_plugin.progress import ShownProgress

        todo: Sequence[tuple[Any, ...]] = list(pairs)
        with ShownProgress(shown=progress) as bar:
            task = bar.add_task("grade", total=len(todo))
            grades: list[Grade] = []
            for grade in self._executor().map(lambda pair: self.grade(*pair), todo):
                grades.append(grade)
                bar.advance(task)
        return grades

    def _executor(self) -> ThreadPoolExecutor:
        with self._threads_lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(
                    self.limits.worker_count + 1, thread_name_prefix="tandem-grading"
                )
            return self._threads

    def _grade(self, answer: str, gold: object, began: float, prompt: str | None = None) -> Grade:
        golds = read_golds(gold)
        if isinstance(golds, str):
            return _failed(began, "gold", golds, answer)
        for text in golds:
            if text == answer:
                return Grade("correct", answer, "text", _since(began), text)
        if (refused := self._refused(answer)) is not None:
            return Grade("incorrect", answer, refused, _since(began))
        if is_generated(golds[0]):
            return _by_its_scorer(answer, golds[0], began)
        if any(len(text) > self.limits.answer_chars for text in golds):
            return _failed(began, "gold", f"A gold is longer than {self.limits.answer_chars} "
                           "characters.", answer)  # fmt: skip
        given = spelled(answer)
        if not given:
            return Grade("no_answer", answer, "empty_box", _since(began))
        return self._decided(answer, given, golds, began, prompt)

    def _decided(
        self, answer: str, given: str, golds: tuple[str, ...], began: float, prompt: str | None
    ) -> Grade:
        spelled_golds = [spelled(text) for text in golds]
        decisions = [decide(text, given, lenient=self.lenient) for text in spelled_golds]
        equal = [i for i, decision in enumerate(decisions) if decision and decision.is_equal]
        as_written = [i for i in equal if decisions[i].rule in AS_WRITTEN]  # type: ignore[union-attr]
        if not as_written and prompt is not None and is_copied(given, prompt):
            return Grade("copied", answer, "copied", _since(began))
        for i in as_written or equal:
            return Grade("correct", answer, decisions[i].rule, _since(began), golds[i])  # type: ignore[union-attr]
        left = [i for i, decision in enumerate(decisions) if decision is None]
        if not left:
            assert decisions[0] is not None
            return Grade("incorrect", answer, decisions[0].rule, _since(began))
        reply = self._pool.ask(tuple(spelled_golds[i] for i in left), given, self.lenient)
        return _graded(reply, answer, [golds[i] for i in left], _since(began) - 1e3 * reply.waited)

    def _refused(self, answer: str) -> str | None:
        """The rule by which an answer is wrong without being read, or None."""
        if len(answer) > self.limits.answer_chars:
            return "too_long"
        if not is_readable(answer):
            return "unreadable"
        return "too_deep" if nesting(answer) > self.limits.answer_depth else None


def _graded(reply: Reply, answer: str, golds: list[str], milliseconds: float) -> Grade:
    if reply.status in ("time_limit", "memory_limit", "recursion_limit", "worker_died"):
        return Grade("timeout", answer, reply.status, milliseconds, message=reply.message)
    if reply.status != "decided":
        return Grade("error", answer, reply.status, milliseconds, message=reply.message)
    last: Decision = reply.decisions[-1]
    if last.is_equal:
        return Grade("correct", answer, last.rule, milliseconds, golds[len(reply.decisions) - 1])
    return Grade("incorrect", answer, reply.decisions[0].rule, milliseconds)


def _by_its_scorer(answer: str, gold: str, began: float) -> Grade:
    try:
        is_right, reference = judge(answer, gold)
    except GradingError:
        raise
    except Exception as error:  # a broken gold, or whatever the library's scorer raises
        return _failed(began, "reasoning_gym", f"{type(error).__name__}: {error}", answer)
    if not is_right:
        return Grade("incorrect", answer, "reasoning_gym", _since(began))
    return Grade("correct", answer, "reasoning_gym", _since(began), reference)


def _failed(began: float, rule: str, message: str, answer: str | None = None) -> Grade:
    return Grade("error", answer, rule, _since(began), message=message)


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


def _kind(value: Any) -> str:
    return type(value).__name__


_defaults: dict[bool, Grader] = {}
_default_lock = threading.Lock()


def default_grader(lenient: bool = False) -> Grader:
    """The shared grader of this process, with the default limits; a separate one if lenient."""
    with _default_lock:
        if lenient not in _defaults:
            _defaults[lenient] = Grader(lenient=lenient)
        return _defaults[lenient]


def grade(response: str, gold: object, prompt: str | None = None) -> Grade:
    """Grade one response with the default grader: :meth:`Grader.grade`."""
    return default_grader().grade(response, gold, prompt)


async def grade_async(response: str, gold: object, prompt: str | None = None) -> Grade:
    """Grade one response with the default grader: :meth:`Grader.grade_async`."""
    return await default_grader().grade_async(response, gold, prompt)


def grade_batch(pairs: Iterable[tuple[Any, ...]], progress: bool = False) -> list[Grade]:
    """Grade pairs with the default grader: :meth:`Grader.grade_batch`."""
    return default_grader().grade_batch(pairs, progress)
