"""One worker process: limited and sealed, with one question at a time, in lines of JSON.

Once sealed, an audit hook, which cannot be removed, blocks every event of the interpreter that is
not on a short list: no text can be compiled or evaluated, and nothing opened, written or started.

SymPy compiles text itself in three places during a comparison. Two of them, which compile an
expression, are replaced here. The third, ``MonomialOps._build``, compiles tuple arithmetic whose
only input is a number of variables, and is allowed.
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
from tandem_plugin.grading.spelling import spelled
from tandem_plugin.grading.symbolic.proof import proof

_ALLOWED = frozenset(
    ("array.__new__", "builtins.id", "code.__new__", "cpython.PyInterpreterState_Clear",
     "cpython._PySys_ClearAuditHooks", "import", "marshal.load", "marshal.loads",
     "object.__delattr__", "object.__getattr__", "object.__setattr__", "os.listdir", "os.scandir",
     "sys._getframe", "sys._current_frames", "sys.excepthook", "sys.unraisablehook", "time.sleep",
     "exec",  # of code objects from files; text was blocked when it was compiled
     "resource.setrlimit")  # the worker lowers its own; hard limits hold
)  # fmt: skip
_IMPORTING = "<frozen importlib._bootstrap>"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

blocked: list[str] = []
"""The events that the seal has blocked: a library may swallow the error."""


class SealedError(RuntimeError):
    """The seal has blocked an operation."""


def seal() -> None:
    """Seal this process, for good."""
    rootoftools.lambdify = _without_code
    evalf.lambdify = _without_code
    # What SymPy imports late may not be compiled yet, and an import would write what it compiles.
    sys.dont_write_bytecode = True
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _ALLOWED or _is_reading(event, arguments) or _is_module(event, arguments):
        return
    blocked.append(event)
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


def work(end: socket.socket, memory_mb: int, seconds: float, forkserver: int) -> None:
    """Answer until the other end closes, or until it is time for a fresh worker.

    seconds: of CPU time per question. The timer's signal ends the process: no handler runs.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != forkserver:
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
    if blocked:
        return {"status": "sealed", "message": f"A sealed worker blocked {blocked[0]!r}."}
    if failure is not None:
        return {"status": "error", "message": failure}
    return {"status": "decided", "decisions": decisions}


def _decided(pairs: list[tuple[str, str]]) -> list[Decision]:
    """A decision for each gold and answer, up to the first that are equal."""
    decisions: list[Decision] = []
    for gold, answer in pairs:
        decisions.append(decide(gold, answer, proof) or Decision(False, "unproven"))
        if decisions[-1].is_equal:
            break
    return decisions


_PAIRS = (
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
    (r"x+5>10", r"(5,\infty)"),
    (r"\frac{1}{x-5}>0", r"(5,\infty)"),
    ("2", r"\lim_{x\to 0}\frac{\sin 2x}{x}"),
    (r"\frac{1}{3}", r"\prod_{k=2}^{\infty}\frac{k^2-1}{k^2}"),
)


def warm_up() -> None:
    """Compare pairs of every kind, before a fork and the seal.

    SymPy imports modules and evaluates its own text when it first integrates or solves, which
    the seal would block; workers inherit its caches.
    """
    for gold, answer in _PAIRS:
        decide(spelled(gold), spelled(answer), proof)
