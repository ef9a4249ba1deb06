"""One worker process: limited, sealed, and told one pair at a time, in lines of JSON."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
from typing import Any

from tandem_plugin.grading.comparison import Decision
from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.symbolic.proof import proof
from tandem_plugin.grading.symbolic.sandbox import seal, take_refusal

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
    questions = end.makefile("rb")
    seal()
    end.sendall(b"{}\n")  # ready
    for count, question in enumerate(questions, 1):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        reply = _answered(json.loads(question))
        signal.setitimer(signal.ITIMER_PROF, 0)
        is_last = (
            count == _MAX_ITEMS
            or reply["status"] != "decided"
            or _peak_kb() - began_with > _MAX_GROWTH_KB
        )
        end.sendall(json.dumps({**reply, "is_last": is_last}).encode() + b"\n")
        if is_last:
            return


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _answered(question: dict[str, Any]) -> dict[str, Any]:
    failure = None
    try:
        decisions = _decided(**question)
    except MemoryError:
        return {"status": "memory_limit"}
    except RecursionError:
        return {"status": "recursion_limit"}
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"[:500]
    if (event := take_refusal()) is not None:
        return {"status": "sealed", "message": f"A sealed worker refused {event!r}."}
    if failure is not None:
        return {"status": "error", "message": failure}
    return {"status": "decided", "decisions": decisions}


def _decided(golds: list[str], answer: str, lenient: bool) -> list[Decision]:
    """A decision for each gold, up to the first that the answer equals."""
    decisions: list[Decision] = []
    for gold in golds:
        decisions.append(decide(gold, answer, proof, lenient) or Decision(False, "unproven"))
        if decisions[-1].is_equal:
            break
    return decisions
