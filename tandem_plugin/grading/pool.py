"""Worker processes as the caller sees them: one question at a time each, killed at the deadline."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.comparison import Decision
from tandem_plugin.grading.outcomes import GradingLimits
from tandem_plugin.grading.symbolic.worker_forkserver import READY

_START_SECONDS = 120.0
_ATTEMPTS = 3
_PATIENCE = 6
"""A busy machine gives a worker its CPU seconds late: it is killed after so many times as long."""
_BOOT = (
    "from tandem_plugin.grading.symbolic.worker_forkserver import main; "
    "main({descriptor}, {caller}, {limits.memory_mb}, {limits.seconds})"
)
_MESSAGES = {
    "time_limit": "No decision within {limits.seconds:g} s.",
    "memory_limit": "It requires more than {limits.memory_mb} MiB.",
    "recursion_limit": "It is nested too deeply to be compared.",
    "worker_died": "The worker was killed by signal {signal}.",
}
"""For the statuses that come without a message."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one question."""

    status: str
    """``decided``, or the rule by which nothing was decided."""
    waited: float
    """Seconds until a worker was free and ready."""
    decisions: tuple[Decision, ...] = ()
    """One per pair, up to the first equal one."""
    message: str | None = None


class WorkerPool:
    """At most ``limits.workers`` processes that decide whether answers equal golds, in turn.

    For use from any thread. A forked child has its own workers and threads.

    Raises :class:`GradingError` if SymPy is not installed.
    """

    def __init__(self, limits: GradingLimits) -> None:
        if importlib.util.find_spec("sympy") is None:
            raise GradingError("grading-needs-sympy")
        self._limits = limits
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._places = _Places(self._limits.worker_count)
        self._forkserver: _Forkserver | None = None
        self.deaths: Counter[str] = Counter()
        """How many workers were lost, by cause."""
        self.threads = self._new_threads()

    def _new_threads(self) -> ThreadPoolExecutor:
        """Enough threads to keep all workers busy."""
        return ThreadPoolExecutor(self._limits.worker_count + 1, "tandem-grading")

    def start(self) -> _Forkserver:
        """Start the process that workers are forked from, or raise :class:`GradingError`."""
        with self._lock:
            if self._forkserver is None or self._forkserver.process.poll() is not None:
                self._end(self._forkserver)
                self._forkserver = _Forkserver(self._limits)
            return self._forkserver

    def ask(self, pairs: list[tuple[str, str]]) -> Reply:
        """Decide whether the spelled gold and answer of one of some pairs are equal.

        Returns within six times ``limits.seconds`` of having a worker, however busy the machine.
        Raises :class:`GradingError` if no worker can be started.
        """
        start = time.monotonic()
        worker, reusable = self._places.take(), None
        try:
            if worker is None or worker.is_gone:
                worker = self._new_worker()
            waited = time.monotonic() - start
            reply = worker.ask({"pairs": pairs}, _PATIENCE * self._limits.seconds)
            reusable = None if reply.get("is_last", True) else worker
        finally:
            if reusable is None and worker is not None:
                worker.end()
            self._places.give(reusable)
        return self._reply(reply, waited)

    def close(self) -> None:
        """End all processes and threads. A later question starts them again."""
        self.threads.shutdown()
        self.threads = self._new_threads()
        self._places.end_idle()
        with self._lock:
            self._end(self._forkserver)

    def _reply(self, reply: dict[str, Any], waited: float) -> Reply:
        status = str(reply.get("status", "worker_died"))
        if status == "decided":
            decisions = (Decision(bool(equal), str(rule)) for equal, rule in reply["decisions"])
            return Reply(status, waited, tuple(decisions))
        with self._lock:
            self.deaths[status] += 1
        usual = _MESSAGES.get(status, "").format(limits=self._limits, signal=reply.get("signal"))
        return Reply(status, waited, message=reply.get("message", usual))

    def _new_worker(self) -> _Worker:
        for _ in range(_ATTEMPTS):
            forkserver = self.start()
            worker = forkserver.fork()
            if worker.has_greeted():
                return worker
            worker.end()
            with self._lock:
                self.deaths["forkserver"] += 1
                self._end(forkserver)
        raise GradingError("grading-workers-died", attempts=_ATTEMPTS)

    def _end(self, forkserver: _Forkserver | None) -> None:
        if forkserver is not None and forkserver is self._forkserver:
            forkserver.close()
            self._forkserver = None


class _Places:
    """The workers that are idle, and None for each that may be started: first come, first served.

    A place that is given back goes straight to the caller that has waited longest: one that asks
    again at once joins the end.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker | None] = [None] * count
        self._waiting: deque[queue.SimpleQueue[_Worker | None]] = deque()

    def take(self) -> _Worker | None:
        """Wait for a place; the one that was used last comes first."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            ticket: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
            self._waiting.append(ticket)
        try:
            return ticket.get()
        except BaseException:  # interrupted: nobody else may wait for this ticket's place
            with self._lock:
                is_served = ticket not in self._waiting
                if not is_served:
                    self._waiting.remove(ticket)
            if is_served:
                self.give(ticket.get())
            raise

    def give(self, place: _Worker | None) -> None:
        """Return a place, with its worker or without one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().put(place)
            else:
                self._idle.append(place)

    def end_idle(self) -> None:
        """End the unused workers."""
        with self._lock:
            idle, self._idle = self._idle, [None] * len(self._idle)
        for worker in filter(None, idle):
            worker.end()


class _Worker:
    """A worker, at the other end of a socket. It ends when that is shut down."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = end.makefile("rb")

    @property
    def is_gone(self) -> bool:
        """Whether an idle worker, which sends nothing unasked, has died."""
        return bool(select.select([self._end], [], [], 0)[0])

    def has_greeted(self) -> bool:
        """Wait for a new worker to say that it is ready."""
        self._end.settimeout(_START_SECONDS)
        with contextlib.suppress(OSError):
            return self._lines.readline() == b"{}\n"
        return False

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The worker's reply, or what became of the worker."""
        self._end.settimeout(seconds)
        try:
            self._end.sendall(json.dumps(question).encode() + b"\n")
            reply = json.loads(self._lines.readline())
        except TimeoutError:
            return {"status": "time_limit"}
        except (OSError, ValueError):
            return {"status": "worker_died", "message": "The worker and its parent process died."}
        return reply if isinstance(reply, dict) else {}

    def end(self) -> None:
        """End the worker, whatever it does."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._end.close()


class _Forkserver:
    """The process that workers are forked from, at the other end of a socket."""

    def __init__(self, limits: GradingLimits) -> None:
        self._control, child_end = socket.socketpair()
        with child_end:
            boot = _BOOT.format(descriptor=child_end.fileno(), caller=os.getpid(), limits=limits)
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", boot],
                pass_fds=[child_end.fileno()],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control.settimeout(_START_SECONDS)
        try:
            message = self._control.recv(65_536)
        except OSError:
            message = b""
        if message != READY:
            self.close()
            raise GradingError(
                "grading-workers-not-started", python=sys.executable, output=message.decode()
            )

    def fork(self) -> _Worker:
        """Order a worker, which greets when it is ready."""
        ours, worker_end = socket.socketpair()
        with worker_end, contextlib.suppress(OSError):
            socket.send_fds(self._control, [b"!"], [worker_end.fileno()])
        return _Worker(ours)

    def close(self) -> None:
        """End the process, and with it all workers."""
        self._control.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _environment() -> dict[str, str]:
    """This process's environment, with its own import path, one thread, and a fixed hash seed."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
        "PYTHONHASHSEED": "0",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _in_child() -> None:
    """In a forked child the processes belong to the parent, and there are no other threads."""
    for pool in list(_pools):
        pool._reset()


os.register_at_fork(after_in_child=_in_child)
