"""One worker process: limited, sealed, and told one pair at a time, in lines of JSON.

Once sealed, an audit hook refuses every event of the interpreter that is not on a short list:
nothing that the worker reads can run, open, write or start anything. The hook cannot be removed.
Above all it refuses to compile text, so that neither ``eval`` nor ``sympify`` nor anything else,
here or in a library, can evaluate an answer as code.

SymPy compiles text itself in three places on the way of a comparison. Two of them, which compile
an expression, are replaced here. The third, ``MonomialOps._build``, compiles tuple arithmetic
whose only input is a number of variables, and is let through.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

import mpmath
import sympy
from sympy.core import evalf
from sympy.polys import rootoftools
from sympy.polys.monomials import MonomialOps

from tandem_plugin.grading.comparison import Decision
from tandem_plugin.grading.equality import decide
from tandem_plugin.grading.symbolic.proof import proof

__all__ = ["SealedError", "seal", "take_refusal", "work"]

_ALLOWED = frozenset(
    ("array.__new__", "builtins.id", "code.__new__", "cpython.PyInterpreterState_Clear",
     "cpython._PySys_ClearAuditHooks", "import", "marshal.load", "marshal.loads",
     "object.__delattr__", "object.__getattr__", "object.__setattr__", "os.listdir", "os.scandir",
     "sys._getframe", "sys._current_frames", "sys.excepthook", "sys.unraisablehook", "time.sleep",
     "exec",  # of code objects from files; text was refused when it was compiled
     "resource.setrlimit")  # the worker lowers its own; hard limits hold
)  # fmt: skip
_IMPORTING = "<frozen importlib._bootstrap>"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_refused: list[str] = []
_sealed = False


class SealedError(RuntimeError):
    """Something tried to do what a worker never needs to do."""


def seal() -> None:
    """Seal this process, for good."""
    global _sealed
    if not _sealed:
        _sealed = True
        rootoftools.lambdify = _without_code
        evalf.lambdify = _without_code
        sys.addaudithook(_audit)


def take_refusal() -> str | None:
    """The first event refused since the last call, or None; libraries may swallow the error."""
    if not _refused:
        return None
    event = _refused[0]
    _refused.clear()
    return event


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _ALLOWED or _is_reading(event, arguments) or _is_module(event, arguments):
        return
    _refused.append(event)
    raise SealedError(f"A sealed worker blocked {event!r}.")


def _is_reading(event: str, arguments: tuple[Any, ...]) -> bool:
    if event != "open":
        return False
    _, mode, flags = arguments
    return not (set(mode or "") & set("wax+")) and not (flags or 0) & _WRITING


def _is_module(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether it is the import of a module's file, or SymPy's tuple arithmetic, that compiles.

    The frames are those of this function, of the hook, and of the one that compiles.
    """
    if event != "compile":
        return False
    code = sys._getframe(2).f_code
    return code.co_filename == _IMPORTING or code is MonomialOps._build.__code__


def _without_code(argument: Any, expression: Any, *_: Any, **__: Any) -> Any:
    """What ``lambdify`` returns for one argument, computed without compiling the expression."""

    def value_at(value: Any) -> Any:
        placed = expression.subs(argument, sympy.sympify(value, strict=True))
        if placed.is_Integer:
            return int(placed)
        return placed._to_mpmath(mpmath.mp.prec)

    return value_at


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
        return {"status": "sealed", "message": f"A sealed worker blocked {event!r}."}
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
