"""Worker processes that are forked from one in which computer algebra is loaded and warm."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import traceback
from typing import NamedTuple

from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.spelling import spelled
from tandem_plugin.grading.symbolic.proof import proof

__all__ = ["READY", "main", "warm_up"]

PAIRS = (
    (r"\frac{\sqrt{3}}{2}+1", r"1+\frac12\sqrt3"),
    (r"x^2+2x+1", r"(x+1)^2"),
    (r"\sqrt[3]{16}", r"2\cdot 2^{1/3}"),
    (r"\sin^2 x+\cos x", r"1-\cos^{2}(x)+\cos(x)"),
    (r"\log_2 8+\ln 3", r"3+\ln(3)"),
    (r"e^{-\frac{u}{LC}}", r"\exp(-u/(LC))"),
    (r"\binom{5}{2}+4!", r"34"),
    (r"\begin{pmatrix}1&2\\3&x\end{pmatrix}", r"\begin{bmatrix}1 & 2\\ 3 & x\end{bmatrix}"),
    (r"(-\infty,\sqrt{2}]\cup(5,\infty)", r"(5,\infty)\cup(-\infty,\sqrt{2}]"),
    (r"x^2+y^2=4", r"x^2+y^2-4=0"),
    (r"|x-1|+2|y|", r"2|y|+|1-x|"),
    (r"2+i\sqrt{7}", r"\sqrt{7}i+2"),
    (r"\sum_{k=1}^{n}k", r"\frac{n(n+1)}{2}"),
    (r"\int_0^1 x^2 dx", r"\frac13"),
    (r"\int_0^\infty e^{-x^2} dx", r"\frac{\sqrt{\pi}}{2}"),
    (r"\sum_{n=0}^{\infty} x^n", r"\frac{1}{1-x}"),
    (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)"),
    (r"\lfloor\frac{7}{2}\rfloor+\max(1,2)", r"\lceil 4.5\rceil"),
    (r"\tan 45^\circ", r"1"),
    (r"\frac{n!}{(n-2)!}", r"n(n-1)"),
    (r"\sqrt{3+2\sqrt{2}}", r"\sqrt{2}+1"),
    (r"4^{n+1}-\frac{1}{2^{k}}", r"4\cdot 4^n-2^{-k}"),
)


UNSOLVED = (
    ("5", "2x=10"),
    (r"(5,\infty)", r"\frac{1}{x-5}>0"),
    ("2", r"\lim_{x\to 0}\frac{\sin 2x}{x}"),
    (r"\frac{1}{3}", r"\prod_{k=2}^{\infty}\frac{k^2-1}{k^2}"),
)


def warm_up() -> None:
    """Compare every pair; what they come to does not matter here.

    SymPy imports modules and builds tables by evaluating text of its own when it first integrates
    or solves: a sealed worker could not.
    """
    for gold, answer in (*PAIRS, *UNSOLVED):
        decide(spelled(gold), spelled(answer), proof, lenient=(gold, answer) in UNSOLVED)


READY = b"ready"
_PATROL_MS = 2_000


def main(descriptor: int, caller: int, memory_mb: int, seconds: float) -> None:
    """Serve the caller at the other end of the socket ``descriptor`` until it closes."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to end
    logging.disable(logging.CRITICAL)
    try:
        warm_up()
    except Exception:
        control.sendall(traceback.format_exc(limit=3).encode())
        return
    gc.collect()
    gc.freeze()
    control.sendall(READY)
    with contextlib.suppress(OSError):
        _serve(control, caller, (memory_mb, seconds))


class _ForkedWorker(NamedTuple):
    """A child that is waited for here alone, so that its id cannot be another's."""

    pid: int
    end: socket.socket
    life: int
    """The end of a pipe that nobody but the worker holds the other end of."""


def _serve(control: socket.socket, caller: int, limits: tuple[int, float]) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    workers: dict[int, _ForkedWorker] = {}
    while os.getppid() == caller:
        for descriptor, _ in poll.poll(_PATROL_MS)[:1]:  # after it a number may be another's
            if descriptor == control.fileno():
                order, ends, _, _ = socket.recv_fds(control, 1, 1)
                if not order:
                    return
                worker = _forked(socket.socket(fileno=ends[0]), limits)
                for place in (worker.end.fileno(), worker.life):
                    poll.register(place, 0)  # of which only the hang-up is told
                    workers[place] = worker
            else:
                gone = workers[descriptor]
                for place in (gone.end.fileno(), gone.life):
                    poll.unregister(place)
                    del workers[place]
                _buried(gone)


def _forked(end: socket.socket, limits: tuple[int, float]) -> _ForkedWorker:
    nursery = os.getpid()
    life, its_life = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its_life)
        return _ForkedWorker(pid, end, life)
    status = 1
    try:
        from tandem_plugin.grading.symbolic.worker import work

        work(end, *limits, nursery)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _buried(worker: _ForkedWorker) -> None:
    """End a worker that is left or dead, and say what it died of to whoever still listens."""
    os.kill(worker.pid, signal.SIGKILL)
    _, status = os.waitpid(worker.pid, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    is_late = ended_by == signal.SIGPROF
    message = {"status": "time_limit" if is_late else "worker_died", "signal": ended_by}
    with worker.end, contextlib.suppress(OSError):
        worker.end.sendall(json.dumps(message).encode() + b"\n")
    os.close(worker.life)
