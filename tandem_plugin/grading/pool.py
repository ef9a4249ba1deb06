"""Workers as the calling process sees them: asked one thing at a time, killed at the deadline."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.decide import Decision
from tandem_plugin.grading.limits import GradingLimits
from tandem_plugin.grading.symbolic.channel import ChannelClosedError, receive, send

__all__ = ["Reply", "WorkerPool", "check_installed"]

Status: TypeAlias = Literal[
    "decided", "time_limit", "memory_limit", "recursion_limit", "worker_died", "error", "sealed"
]

_START_SECONDS = 120.0
_ATTEMPTS = 3
_PATIENCE = 6
"""A busy machine gives a worker its CPU seconds late: it is killed after so many times as long."""
_BOOT = (
    "from tandem_plugin.grading.symbolic.nursery import main; "
    "main({descriptor}, {caller}, {memory_mb}, {seconds})"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one question."""

    status: Status
    decisions: tuple[Decision, ...] = ()
    """One for each gold up to the first equal one; of status ``decided`` only."""
    message: str | None = None
    waited: float = 0.0
    """Seconds until a worker was free and ready."""


@dataclass(slots=True)
class _Worker:
    """A worker's end of the line, and the nursery that can end the worker."""

    number: int
    end: socket.socket
    nursery: _Nursery
    is_ready: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether an idle worker, which says nothing unasked, has closed its end."""
        return bool(select.select([self.end], [], [], 0)[0])


def check_installed() -> None:
    """Raise :class:`GradingError` where SymPy is not installed."""
    if importlib.util.find_spec("sympy") is None:
        raise GradingError(
            "SymPy, which compares symbolic answers, is not installed here: "
            "pip install 'tandem-plugin[math]'."
        )


class WorkerPool:
    """At most ``limits.workers`` processes that decide whether answers equal golds.

    For use from any thread. A pool that a process inherits by a fork starts workers of its own.
    """

    def __init__(self, limits: GradingLimits) -> None:
        check_installed()
        self._limits = limits
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._free = threading.Semaphore(self._limits.worker_count)
        self._lock = threading.RLock()
        self._idle: list[_Worker] = []
        self._nursery: _Nursery | None = None
        self._deaths: Counter[str] = Counter()

    @property
    def deaths(self) -> dict[str, int]:
        """How many workers were lost, and to what; planned replacements are not counted."""
        return dict(self._deaths)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The process that workers are forked from, where it runs."""
        return (self._nursery.pid,) if self._nursery is not None else ()

    def start(self) -> None:
        """Start the process that workers are forked from, which takes seconds, ahead of need.

        Raises :class:`GradingError`.
        """
        with self._lock:
            if self._nursery is None or not self._nursery.is_alive:
                self._close_nursery()
                self._nursery = _Nursery(self._limits)

    def ask(self, golds: tuple[str, ...], answer: str, lenient: bool = False) -> Reply:
        """Decide whether a spelled answer equals one of the spelled golds.

        Returns within six times ``limits.seconds`` of having a worker, however busy the machine.
        Raises :class:`GradingError` where no worker can be had.
        """
        asked = time.monotonic()
        with self._free:
            worker = self._ready_worker()
            began = time.monotonic()
            answered: dict[str, Any] | None = None
            try:
                answered = self._exchange(
                    worker, {"golds": golds, "answer": answer, "lenient": lenient}
                )
            finally:
                ended_by = self._put_back(worker, answered)
        reply = self._reply(answered, ended_by)
        return Reply(reply.status, reply.decisions, reply.message, began - asked)

    def close(self) -> None:
        """End all processes. A later question starts them again."""
        with self._lock:
            while self._idle:
                self._idle.pop().end.close()
            self._close_nursery()

    def _close_nursery(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def _exchange(self, worker: _Worker, question: dict[str, Any]) -> dict[str, Any] | None:
        deadline = time.monotonic() + _PATIENCE * self._limits.seconds
        try:
            send(worker.end, question)
            return receive(worker.end, deadline)
        except TimeoutError:
            return {"status": "late"}
        except (ChannelClosedError, ValueError):
            return None

    def _reply(self, answered: dict[str, Any] | None, ended_by: int | None) -> Reply:
        status = "died" if answered is None else answered.get("status")
        message = None if answered is None else answered.get("message")
        if status == "late" or (status == "died" and ended_by == signal.SIGPROF):
            return self._lost("time_limit", f"No decision within {self._limits.seconds:g} s.")
        if status == "memory":
            return self._lost("memory_limit", f"It needs more than {self._limits.memory_mb} MiB.")
        if status == "recursion":
            return self._lost("recursion_limit", "It nests too deep to be compared.")
        if status == "error":
            return self._lost("error", message)
        if status == "sealed":
            return self._lost("sealed", message)
        if answered is None or status != "decided":
            return self._lost("worker_died", f"The worker died of signal {ended_by}.")
        decisions = tuple(Decision(bool(equal), str(rule)) for equal, rule in answered["decisions"])
        return Reply("decided", decisions)

    def _lost(self, status: Status, message: str | None) -> Reply:
        with self._lock:
            self._deaths[status] += 1
        return Reply(status, message=message)

    def _ready_worker(self) -> _Worker:
        for _ in range(_ATTEMPTS):
            worker = self._take()
            if worker.is_ready:
                return worker
            try:
                receive(worker.end, time.monotonic() + _START_SECONDS)
            except (TimeoutError, ChannelClosedError):
                worker.end.close()
                with self._lock:
                    self._deaths["nursery"] += 1
                    if self._nursery is worker.nursery:
                        self._close_nursery()
            else:
                worker.is_ready = True
                return worker
        raise GradingError(
            f"The process that grading workers are forked from died {_ATTEMPTS} times in a row: "
            "is the machine out of memory?"
        )

    def _take(self) -> _Worker:
        """An idle worker, or one that has been ordered: no process is waited for."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if not worker.is_gone:
                    return worker
                worker.end.close()
            self.start()
            assert self._nursery is not None
            return self._nursery.fork()

    def _put_back(self, worker: _Worker, answered: dict[str, Any] | None) -> int | None:
        """Keep the worker, or end it; says by which signal a worker ended by itself."""
        with self._lock:
            if answered is not None and answered.get("is_last") is False:
                self._idle.append(worker)
                return None
            worker.end.close()
            return worker.nursery.end(worker.number, says_how=answered is None)

    def _forget(self) -> None:
        """In a forked child: the processes belong to the parent."""
        with contextlib.suppress(OSError):
            for worker in self._idle:
                worker.end.close()
            if self._nursery is not None:
                self._nursery.forget()
        self._reset()


class _Nursery:
    """The process that workers are forked from, at the other end of a socket."""

    def __init__(self, limits: GradingLimits) -> None:
        self._control, other = socket.socketpair()
        self._count = 0
        boot = _BOOT.format(
            descriptor=other.fileno(),
            caller=os.getpid(),
            memory_mb=limits.memory_mb,
            seconds=limits.seconds,
        )
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", boot],
                pass_fds=[other.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            greeting = receive(self._control, time.monotonic() + _START_SECONDS)
        except (TimeoutError, ChannelClosedError) as error:
            self.close()
            raise GradingError(
                f"The process for grading workers did not start ({type(error).__name__}): run "
                f"{sys.executable} -c 'import sympy' to see why."
            ) from error
        if "error" in greeting:
            self.close()
            raise GradingError(
                f"The process for grading workers could not start:\n{greeting['error']}"
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self) -> _Worker:
        """Order a worker. It greets when it is there; an end that closes instead says it is not."""
        self._count += 1
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(ChannelClosedError):
            self._order({"fork": self._count}, [theirs.fileno()])
        return _Worker(self._count, ours, self)

    def end(self, number: int, says_how: bool) -> int | None:
        """End a worker, whatever it does; says, where asked, which signal it had ended by."""
        try:
            self._order({"kill": number, "says_how": says_how}, [])
            if not says_how:
                return None
            ended_by = receive(self._control, time.monotonic() + _START_SECONDS).get("signal")
        except (TimeoutError, ChannelClosedError):
            return None
        return int(ended_by) if ended_by is not None else None

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child: close what was inherited, leave the process alone."""
        self._control.close()
        self._process.returncode = 0

    def _order(self, order: dict[str, Any], descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._control, [b"!"], descriptors)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        send(self._control, order)


def _environment() -> dict[str, str]:
    """This process's environment, with its own import path, one thread, and a fixed hash seed."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _in_child() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_in_child)
