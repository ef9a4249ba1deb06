"""A trainer's process: its output on the screen and in a log, and no process left after it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tandem_plugin.errors import is_code
from tandem_plugin.lab.recipes.run import Command
from tandem_plugin.terminal.processes import end_marked, marked, started_guard

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_ERROR = re.compile(rb"^(?:.*?\b)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)): .+")
_CODED = re.compile(rb"(.*) \[([a-z0-9]+(?:-[a-z0-9]+)+)\]")
"""A line that ends as this package's errors do, whatever a trainer writes before it."""
_LONGEST = 600
_OF_LAUNCHERS = (b"CalledProcessError", b"ChildFailedError")
"""They report that a process failed, after its own error."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trainer ended."""

    code: int
    """Its exit code; negative by a signal, as :mod:`subprocess` has it."""
    seconds: float
    error: str
    """The last error in its output, one line; empty if there was none."""
    coded: str = ""
    """The last error of this package before it, such as a reward's, which OpenRLHF logs and then
    ends for the want of a reward."""
    stopped_by: str = ""
    """The signal that this process got meanwhile, by its name."""


class _StoppedError(Exception):
    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name


def run_trainer(
    command: Command,
    log: Path,
    environ: Mapping[str, str],
    folder: Path,
    keeps: int | None = None,
    show: Callable[[bytes], Any] | None = None,
) -> Ended:
    """Run a command to its end, and append its output to a log.

    A signal that ends this process first ends all that the command started; if it is killed, such
    as for memory, a process that guards it does so. folder: where it runs. keeps: a file descriptor
    that the command holds open. show: what to do with the output; it is written to standard output
    by default.
    """
    mark, start = secrets.token_hex(8), time.monotonic()
    variables = command.environment(environ)
    error, coded, tail, stopped_by = b"", b"", b"", ""
    with log.open("ab") as file, _guarded(mark):
        process = subprocess.Popen(
            command.arguments,
            env={**variables, **marked(variables, mark), "PYTHONUNBUFFERED": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if keeps is None else (keeps,),
        )
        assert process.stdout is not None
        try:
            with _signals_raised():
                for part in _parts(process.stdout.fileno()):
                    file.write(part)
                    file.flush()
                    (show or _show)(part)
                    *lines, tail = (tail + part).split(b"\n")
                    error = next(filter(None, map(_error_in, reversed(lines))), error)
                    coded = next(filter(None, map(_coded_in, reversed(lines))), coded)
                process.wait()
        except _StoppedError as stop:
            stopped_by = stop.name
        finally:
            with _signals_ignored():
                end_marked(mark, lambda: process.poll() is not None)
                process.wait()
    error_text, coded_text = (line.decode("utf-8", "replace") for line in (error, coded))
    seconds = time.monotonic() - start
    return Ended(process.returncode, seconds, error_text, coded_text, stopped_by)


def _parts(pipe: int) -> Iterator[bytes]:
    """What is written to a pipe, as it comes: progress bars end no line."""
    while part := os.read(pipe, 2**16):
        yield part


def _show(part: bytes) -> None:
    """Pass output on; a screen that is gone is no reason to stop."""
    with suppress(OSError, ValueError):
        sys.stdout.buffer.write(part)
        sys.stdout.flush()


def _plain(line: bytes) -> bytes:
    """A line without colours."""
    return re.sub(rb"\x1b\[[0-9;]*m", b"", line).strip()


def _coded_in(line: bytes) -> bytes:
    """A line that has an error of this package, cut at its beginning."""
    match = _CODED.fullmatch(_plain(line))
    return match[0][-_LONGEST:] if match and is_code(match[2].decode()) else b""


def _error_in(line: bytes) -> bytes:
    """A line of Python's that names an error, without what Ray puts before it."""
    plain = _plain(line)
    match = _ERROR.match(plain)
    if match is None or any(name in match[1] for name in _OF_LAUNCHERS):
        return b""
    return plain[match.start(1) :]


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Let signals that would end this process raise :class:`_StoppedError` in it."""

    def stop(number: int, _: FrameType | None) -> None:
        raise _StoppedError(number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _guarded(mark: str) -> Iterator[None]:
    """Have all processes of a run ended if this one is killed meanwhile."""
    with started_guard(mark) as guard:
        try:
            yield
        finally:
            guard.kill()
