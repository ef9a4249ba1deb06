"""Files that a user names: read where they are regular, written whole, never over an input."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tandem_plugin.errors import OutputError

__all__ = [
    "InputFiles",
    "open_file",
    "read_file",
    "replacing",
    "system_advice",
    "system_reason",
    "write_file",
]


def open_file(path: str | Path) -> io.BufferedReader:
    """A regular file, open for reading.

    Raises OSError for everything else: a pipe, which might never end, is not even waited for.
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a null byte in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return Path(path).open("rb")


def read_file(path: str | Path) -> bytes:
    """The content of a regular file; raises OSError as :func:`open_file` does."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Gives a new file to write to, which takes the place of ``path`` when all is written.

    Whatever interrupts the writing, ``path`` is as it was, or as it was meant to be. A link stays a
    link, and what it points at is replaced. Raises :class:`OutputError` where it cannot be.
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
        os.replace(temporary, target)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all, text as UTF-8; raises :class:`OutputError`."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


class InputFiles:
    """The files that a command reads, by which it knows them under any name.

    Links, other spellings of a path, and other cases where the file system takes them for the same
    all lead to the same file on the same device. Files that are not there are left out: whatever
    is not there cannot be overwritten.
    """

    def __init__(self, **files: Iterable[str | Path]) -> None:
        """files: by what they are, as the error calls them: ``rollouts``, ``tokenizer``."""
        self._names: dict[tuple[int, int], str] = {}
        for what, listed in files.items():
            for file in listed:
                if found := _identity(file):
                    self._names.setdefault(found, f"the {what} {str(file)!r}")

    def check_outputs(self, *outputs: Path) -> None:
        """Raise :class:`OutputError` where an output is one of the inputs."""
        for output in outputs:
            found = _identity(output)
            if found in self._names:
                raise OutputError("TP763", output=output, what=self._names[found])


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _mode(target: Path) -> int | None:
    """The permissions of what is replaced; None where nothing is there yet."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is no regular file")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(mode)


def _unwritable(path: str | Path, error: OSError) -> OutputError:
    return OutputError("TP751", path=path, reason=system_reason(error), advice=system_advice(error))


_REMEDIES = {
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path: a part of it is a file.",
    errno.EISDIR: "Give a file, not a folder.",
    errno.EACCES: "Change its permissions, or give another.",
    errno.EPERM: "Change its permissions, or give another.",
    errno.EROFS: "Give a place that can be written to.",
    errno.ENOSPC: "Make room on its disk, or give a place on another.",
    errno.EDQUOT: "Make room on its disk, or give a place on another.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.EINVAL: "Give another.",
}


def system_reason(error: OSError) -> str:
    """Why a file could not be read or written, as the system says it."""
    return str(error.strerror or error)


def system_advice(error: OSError) -> str:
    """What to do about it: a sentence."""
    return _REMEDIES.get(error.errno or 0, "Give another file, or look at its disk.")
