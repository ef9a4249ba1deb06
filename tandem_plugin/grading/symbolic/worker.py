"""One worker process: limited, sealed, and told one pair at a time."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
from typing import Any

from tandem_plugin.grading.decide import Decision, decide
from tandem_plugin.grading.symbolic.channel import ChannelClosedError, receive, send
from tandem_plugin.grading.symbolic.proof import proof
from tandem_plugin.grading.symbolic.seal import seal, take_refusal

__all__ = ["work"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_MAX_ITEMS = 2_000
_MAX_GROWTH_KB = 256 * 1024


def work(end: socket.socket, memory_mb: int, seconds: float, nursery: int) -> None:
    """Answer until the other end closes, or until it is time for a fresh worker.

    seconds: of CPU time for one question. The signal of the timer ends the process, whatever it is
    at: no handler runs.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nursery:
        return
    limit = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    began_with = _peak_kb()
    seal()
    try:
        send(end, {"ready": os.getpid()})
        for count in range(1, _MAX_ITEMS + 1):
            question = receive(end)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            reply = _answered(question)
            signal.setitimer(signal.ITIMER_PROF, 0)
            is_last = (
                count == _MAX_ITEMS
                or reply.get("status") != "decided"
                or _peak_kb() - began_with > _MAX_GROWTH_KB
            )
            send(end, {**reply, "is_last": is_last})
            if is_last:
                return
    except ChannelClosedError:
        return


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _answered(question: dict[str, Any]) -> dict[str, Any]:
    try:
        decisions = _decided(question["golds"], question["answer"], bool(question["lenient"]))
    except MemoryError:
        return {"status": "memory"}
    except RecursionError:
        return {"status": "recursion"}
    except Exception as error:
        if (event := take_refusal()) is not None:
            return _sealed(event)
        return {"status": "error", "message": f"{type(error).__name__}: {error}"[:500]}
    if (event := take_refusal()) is not None:
        return _sealed(event)
    return {"status": "decided", "decisions": decisions}


def _sealed(event: str) -> dict[str, Any]:
    return {"status": "sealed", "message": f"A sealed worker refused {event!r}."}


def _decided(golds: list[str], answer: str, lenient: bool) -> list[tuple[bool, str]]:
    """A decision for each gold, up to the first that the answer equals."""
    decisions: list[tuple[bool, str]] = []
    for gold in golds:
        found = decide(gold, answer, proof, lenient) or Decision(False, "unproven")
        decisions.append((found.is_equal, found.rule))
        if found.is_equal:
            break
    return decisions
