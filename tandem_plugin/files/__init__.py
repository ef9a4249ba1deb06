"""Files that a user names, read and written whole or by lines, and JSON from other programs."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import logging
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import product
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeGuard

from tandem_plugin.errors import OutputError

__all__ = [
    "ForeignLineError",
    "WholeLines",
    "check_outputs",
    "check_page",
    "is_number",
    "lock_file",
    "open_file",
    "parse_json",
    "read_appended",
    "read_file",
    "replacing",
    "system_reason",
    "write_file",
]

logger = logging.getLogger(__name__)

_LOCKED = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
"""The system's errors if a different process has a lock; EACCES on some network mounts."""

PAGE_MARK = b"Made by tandem-plugin"
"""In the last lines of every page that `tandem view` and `tandem report` write."""

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that Git left where Git LFS, which has the content, was not installed."""


def open_file(path: str | Path) -> io.BufferedReader:
    """A regular file, open for reading.

    Raises OSError for everything else, without waiting for a pipe, which might never end, and for a
    pointer of Git LFS in place of the file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    file = Path(path).open("rb")  # noqa: SIM115, the caller's
    if file.peek(len(_LFS_POINTER)).startswith(_LFS_POINTER):
        file.close()
        reason = "It is a pointer of Git LFS; `git lfs pull` in its repository downloads the file"
        raise OSError(errno.EINVAL, reason, str(path))
    return file


def read_file(path: str | Path) -> bytes:
    """The content of a regular file; raises OSError as :func:`open_file` does."""
    with open_file(path) as file:
        return file.read()


def lock_file(file: IO[bytes], path: Path) -> bool:
    """Lock a file until it is closed; False if a different process has locked it.

    path: what the lock protects, for the message. Where the file system has no locks, such as NFS
    without lockd or Lustre without ``-o flock``, a warning is logged, and nothing is locked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            return False
        logger.warning(
            "%s cannot be locked (%s): make sure that no other process writes to it.",
            path,
            system_reason(error),
        )
    return True


class ForeignLineError(ValueError):
    """A line that the command did not write."""

    def __init__(self, line: int, reason: ValueError) -> None:
        super().__init__(str(reason))
        self.line = line


class WholeLines(NamedTuple):
    """The part of a file with complete lines; a torn line may follow."""

    size: int
    """Bytes of whole lines."""
    ends: bool
    """False where the last of them is whole but for its end."""


def read_appended(path: Path, begin: bytes, take: Callable[[bytes], None]) -> WholeLines:
    """Pass every line of a file to ``take``, except blank ones.

    begin: how every line begins. take: raises ValueError for a line that the command did not write.
    The last line may lack its end: it counts if it can be accepted, and is torn if it cannot but
    begins like the others, or with NUL, as after a loss of power. Raises :class:`ForeignLineError`
    for any other line, so nothing else is ever removed, and OSError if the file cannot be read.
    """
    size = 0
    with open_file(path) as lines:
        for number, line in enumerate(lines, 1):
            ends = line.endswith(b"\n")
            try:
                if line.strip():
                    take(line)
            except ValueError as error:
                begun = line.rstrip(b"\0")[: len(begin)]
                is_torn = line.startswith(b"\0") or begin.startswith(begun)
                if ends or not is_torn:
                    raise ForeignLineError(number, error) from error
                return WholeLines(size, True)
            size += len(line)
            if not ends:
                return WholeLines(size, False)
    return WholeLines(size, True)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A new file to write to, which replaces ``path`` once everything is written.

    If the writing is interrupted, also by a loss of power, ``path`` stays as it was. A link remains
    a link, and its target is replaced. Raises :class:`OutputError` if it cannot be replaced.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        mode = _mode(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield temporary
        if mode is not None:
            os.chmod(temporary, mode)
        _store(temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _store(file: Path) -> None:
    """Write a file from the system's memory to its disk, where the file system can.

    A file that is renamed before may be empty or full of NUL after a loss of power.
    """
    with file.open("rb") as stored:
        try:
            os.fsync(stored.fileno())
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8; raises :class:`OutputError`."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def check_outputs(inputs: Mapping[str, Iterable[str | Path]], *outputs: Path) -> None:
    """Raise :class:`OutputError` if an output is one of the inputs, under whatever name.

    Links, different spellings of a path and other aliases all lead to the same file on the same
    device. Missing files are ignored, since they cannot be overwritten. inputs: by their role, as
    named in the error: ``rollouts``, ``tokenizer``.
    """
    files = [(role, str(file)) for role, listed in inputs.items() for file in listed]
    for output, (role, file) in product(outputs, files):
        if _is_same(output, file):
            raise OutputError("output-overwrites-input", output=output, what=f"the {role} {file!r}")


def check_page(page: Path, mark: bytes = PAGE_MARK) -> None:
    """Raise :class:`OutputError` if a page would replace a file that is no page of tandem's.

    mark: what every such file contains.
    """
    try:
        if page.stat().st_size == 0:
            return
        with open_file(page) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            is_own = content.find(mark) >= 0
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(page, error) from error
    if not is_own:
        raise OutputError("page-is-foreign", page=page)


def _is_same(first: Path, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return False


def _mode(target: Path) -> int | None:
    """The permissions of the replaced file; None for a new file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is not a regular file")
    return stat.S_IMODE(mode)


def _unwritable(path: str | Path, error: OSError) -> OutputError:
    return OutputError("file-unwritable", path=path, reason=system_reason(error))


def system_reason(error: OSError) -> str:
    """Why a file could not be read or written, in the system's words."""
    return str(error.strerror or error)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; bytes are read as UTF-8, with or without a byte order mark.

    Raises ValueError, with the reason, for invalid JSON, and for an object that contains a field
    twice, since readers differ in which one they use.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: str | Path) -> Any:
    """The value in a JSON file; raises as :func:`read_file` and :func:`parse_json` do."""
    return parse_json(read_file(path))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number that fits in a float, and not a bool."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # Python compares integers with floats exactly: one of 400 digits overflows nothing here.
    return abs(value) <= sys.float_info.max


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it contains the field {twice[:60]!r} twice")
    return fields
