"""Imported first: an interrupted command says so in a sentence, also while it imports the rest.

Nothing changes in a program that only imports the package.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from itertools import pairwise
from types import TracebackType

_MODULES = {
    "tandem_plugin",
    "tandem_verl.keep_seniors",
    "tandem_openrlhf.choose_problems",
}
"""Programs that users start."""


def is_command(arguments: list[str]) -> bool:
    """Whether these start ``tandem`` or one of the modules, the interpreter's included."""
    names = {os.path.basename(one).removesuffix(".exe") for one in arguments[:2]}
    modules = {name for option, name in pairwise(arguments) if option == "-m"}
    return "tandem" in names or bool(modules & _MODULES)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("Error: Interrupted.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _repeat(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt again where Ctrl-C came in a callback that cannot raise, as imports have some."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        # From a thread: here, it would be ignored again.
        _thread.start_new_thread(os.kill, (os.getpid(), signal.SIGINT))
    else:
        sys.__unraisablehook__(lost)


if is_command(sys.orig_argv):
    sys.excepthook = _report
    sys.unraisablehook = _repeat
