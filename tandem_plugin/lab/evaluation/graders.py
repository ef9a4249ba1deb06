"""Additional graders: reward functions in files, such as the one of the paper's release.

They run in a process of their own, which is ended when one response takes too long.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tandem_plugin.errors import EvaluationError, printable
from tandem_plugin.grading import Grade
from tandem_plugin.grading.generated import is_generated
from tandem_plugin.grading.outcomes import Outcome
from tandem_plugin.lab.evaluation.inputs import checked_name
from tandem_plugin.patching.versions import installed_version

_SECONDS = 60.0
"""The most wall time of one response: the release's grader waits for SymPy without a limit."""

_PACKAGES = ("math-verify", "latex2sympy2-extended", "pylatexenc", "sympy")
"""What the release's grader imports; it grades otherwise, without a word, where one is missing."""


@dataclass(frozen=True, slots=True)
class FileGrader:
    """A grader in a file: a function ``compute_score`` as verl's reward functions have it.

    It is called with (data source, response, gold) and returns a number or a dictionary with
    ``acc`` or ``score``; 1 is right.
    """

    name: str
    path: Path

    def settings(self) -> dict[str, Any]:
        """Its record in a result: the checksum of the file and its neighbours, and versions."""
        digest = hashlib.sha256()
        for file in sorted(self.path.parent.glob("*.py")):
            digest.update(file.read_bytes())
        versions = {name: installed_version(name) for name in _PACKAGES}
        return {"file": self.path.name, "sha256": digest.hexdigest(), "versions": versions}

    def start(self) -> RunningGrader:
        """At work: a context manager."""
        return RunningGrader(self)


def read_grader(argument: str) -> FileGrader:
    """A grader from ``NAME=FILE``.

    Raises :class:`EvaluationError` for a missing file, and for a missing package that the file or
    a file in the same folder names.
    """
    name, _, path = argument.partition("=")
    if not path:
        raise EvaluationError("grader-not-a-file", given=argument)
    file = Path(path).resolve()
    if not file.is_file():
        raise EvaluationError("grader-file-missing", path=path)
    text = "\n".join(neighbour.read_text("utf-8") for neighbour in sorted(file.parent.glob("*.py")))
    for package in _PACKAGES:
        module = package.replace("-", "_")
        if re.search(rf"\b{module}\b", text) and importlib.util.find_spec(module) is None:
            raise EvaluationError("grader-package-missing", path=path, package=package)
    return FileGrader(checked_name(name, "grader"), file)


class RunningGrader:
    """A grader at work; a context manager that ends its process."""

    def __init__(self, grader: FileGrader) -> None:
        self._grader = grader
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> RunningGrader:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def grade_batch(self, pairs: Iterable[tuple[str, list[str]]]) -> list[Grade]:
        """Grade (response, golds), in order; any of the golds may be met.

        Raises :class:`EvaluationError` for a gold of a task with a dedicated scorer.
        """
        return [self._grade(*pair) for pair in pairs]

    def _grade(self, response: str, golds: list[str]) -> Grade:
        if any(map(is_generated, golds)):
            raise EvaluationError("grader-of-generated-task", name=self._grader.name)
        began = time.perf_counter()
        outcome, message = self._answer(response, golds)
        took = (time.perf_counter() - began) * 1e3
        return Grade(outcome, None, self._grader.name, took, message=message)

    def _answer(self, response: str, golds: list[str]) -> tuple[Outcome, str | None]:
        connection = self._connection or self._start()
        try:
            connection.send((response, golds))
            if connection.poll(_SECONDS):
                outcome: tuple[Outcome, str | None] = connection.recv()
                return outcome
        except (EOFError, OSError) as error:
            self._end()
            return "error", f"The process of the grader ended: {type(error).__name__}."
        self._end()
        return "timeout", f"The grader took longer than {_SECONDS:.0f} seconds."

    def _start(self) -> Connection:
        context = get_context("spawn")
        self._connection, child_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child_end, str(self._grader.path), os.getpid()), daemon=True
        )
        self._process.start()
        child_end.close()
        try:
            reason = self._connection.recv()
        except EOFError:
            reason = "its process ended"
        if reason:
            self._end()
            raise EvaluationError("grader-does-not-load", path=self._grader.path, reason=reason)
        return self._connection

    def _end(self) -> None:
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


# In the process.

_BEST_FIRST: tuple[Outcome, ...] = ("correct", "incorrect", "no_answer")


def _serve(connection: Connection, path: str, parent: int) -> None:
    """Grade what comes; the file's own alarms need a main thread, which this is."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        compute_score = _load(path)
    except Exception as error:
        connection.send(_described(error))
        return
    connection.send("")
    while True:
        try:
            response, golds = connection.recv()
        except EOFError:
            return
        try:
            outcomes = [_outcome(compute_score, response, gold) for gold in golds]
            connection.send((min(outcomes, key=_BEST_FIRST.index), None))
        except Exception as error:
            connection.send(("error", _described(error)))


def _end_with(parent: int) -> None:
    """End this process with its parent: a killed one sets no limit to a response any more."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _described(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")[:300]


def _load(path: str) -> Callable[..., Any]:
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location("tandem_grader_file", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compute_score: Callable[..., Any] = module.compute_score
    return compute_score


def _outcome(compute_score: Callable[..., Any], response: str, gold: str) -> Outcome:
    score = compute_score("math", response, gold)
    answered = True
    if isinstance(score, dict):
        answered = bool(score.get("answer_present", True))
        score = score.get("acc", score.get("score"))
    if float(score) >= 1:
        return "correct"
    return "incorrect" if answered else "no_answer"
