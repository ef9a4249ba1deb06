"""The process that workers are forked from: computer algebra is imported and warmed up once.

It has one thread and never sees an answer, so it cannot get stuck. It starts a worker for every
socket that it is sent, kills the worker it is told to kill, and ends, with all workers, when its
caller is gone.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import socket
import traceback

from tandem_plugin.grading.symbolic.channel import ChannelClosedError, receive, send

__all__ = ["main"]

_PATROL_SECONDS = 2.0


def main(descriptor: int, caller: int, memory_mb: int, seconds: float) -> None:
    """Serve the caller at the other end of the socket ``descriptor`` until it closes."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to end
    logging.disable(logging.CRITICAL)
    try:
        from tandem_plugin.grading.symbolic.warm_up import warm_up

        warm_up()
    except Exception:
        send(control, {"error": traceback.format_exc(limit=3)})
        return
    gc.collect()
    gc.freeze()
    send(control, {"ready": os.getpid()})
    with contextlib.suppress(ChannelClosedError):
        _Nursery(control, caller, memory_mb, seconds).serve()


class _Nursery:
    def __init__(self, control: socket.socket, caller: int, memory_mb: int, seconds: float) -> None:
        self._control = control
        self._caller = caller
        self._limits = (memory_mb, seconds)
        self._workers: dict[int, int] = {}
        """Process ids by the numbers that the caller gave. Only here are they waited for, so no
        id in this table can belong to another process."""

    def serve(self) -> None:
        try:
            while os.getppid() == self._caller:
                readable, _, _ = select.select([self._control], [], [], _PATROL_SECONDS)
                if readable:
                    self._obey()
        finally:
            for pid in self._workers.values():
                os.kill(pid, signal.SIGKILL)

    def _obey(self) -> None:
        try:
            _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        try:
            order = receive(self._control)
            if "fork" in order:
                self._fork(order["fork"], descriptors[0])
                return
            ended_by = self._kill(order["kill"])
            if order["says_how"]:
                send(self._control, {"signal": ended_by})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork(self, number: int, descriptor: int) -> None:
        nursery = os.getpid()
        pid = os.fork()
        if pid:
            self._workers[number] = pid
            return
        status = 1
        try:
            self._control.close()
            from tandem_plugin.grading.symbolic.worker import work

            work(socket.socket(fileno=descriptor), *self._limits, nursery)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _kill(self, number: int) -> int | None:
        """End a worker; returns the signal that ended it, None where it had ended by itself."""
        pid = self._workers.pop(number, None)
        if pid is None:
            return None
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
