"""The process that workers are forked from: computer algebra is imported and warmed up once.

It has one thread and never sees an answer, so it cannot get stuck. It forks a worker for each
socket that it receives, and keeps the socket: it kills a worker whose caller shuts the socket down,
and writes into it what a worker died of. It ends, with all workers, when its caller is gone.
"""

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

READY = b"ready"
_PATROL_MS = 2_000


def main(descriptor: int, caller: int, memory_mb: int, seconds: float) -> None:
    """Serve the caller at the other end of the socket ``descriptor`` until it closes."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to end
    logging.disable(logging.CRITICAL)
    try:
        from tandem_plugin.grading.symbolic.worker import warm_up

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
    """A child that only this process waits for, which keeps its id from reuse."""

    pid: int
    end: socket.socket
    life: int
    """A pipe whose other end only the worker holds."""


def _serve(control: socket.socket, caller: int, limits: tuple[int, float]) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    workers: dict[int, _ForkedWorker] = {}
    while os.getppid() == caller:
        for descriptor, _ in poll.poll(_PATROL_MS)[:1]:  # handling one may reuse another's number
            if descriptor == control.fileno():
                order, ends, _, _ = socket.recv_fds(control, 1, 1)
                if not order:
                    return
                worker = _forked(socket.socket(fileno=ends[0]), limits)
                for place in (worker.end.fileno(), worker.life):
                    poll.register(place, 0)  # reports the hang-up alone
                    workers[place] = worker
            else:
                gone = workers[descriptor]
                for place in (gone.end.fileno(), gone.life):
                    poll.unregister(place)
                    del workers[place]
                _buried(gone)


def _forked(end: socket.socket, limits: tuple[int, float]) -> _ForkedWorker:
    forkserver = os.getpid()
    life, its_life = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its_life)
        return _ForkedWorker(pid, end, life)
    status = 1
    try:
        from tandem_plugin.grading.symbolic.worker import work

        work(end, *limits, forkserver)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _buried(worker: _ForkedWorker) -> None:
    """End a worker that was abandoned or died, and report what it died of."""
    os.kill(worker.pid, signal.SIGKILL)
    _, status = os.waitpid(worker.pid, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    is_late = ended_by == signal.SIGPROF
    report = {"status": "time_limit" if is_late else "worker_died", "signal": ended_by}
    with worker.end, contextlib.suppress(OSError):
        worker.end.sendall(json.dumps(report).encode() + b"\n")
    os.close(worker.life)
