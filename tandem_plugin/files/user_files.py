"""Files and checkpoints that a user names."""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tandem_plugin.errors import ConfigError, OutputError

__all__ = [
    "InputFiles",
    "check_model",
    "is_hub_name",
    "open_file",
    "read_file",
    "replacing",
    "system_reason",
    "write_file",
]


def open_file(path: str | Path) -> io.BufferedReader:
    """A regular file, open for reading.

    Raises OSError for everything else, without waiting for a pipe, which might never end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return Path(path).open("rb")


def read_file(path: str | Path) -> bytes:
    """The content of a regular file; raises OSError as :func:`open_file` does."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A new file to write to, which replaces ``path`` once everything is written.

    If the writing is interrupted, ``path`` stays as it was. A link remains a link, and its target
    is replaced. Raises :class:`OutputError` if it cannot be replaced.
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
    """Write a file atomically, text as UTF-8; raises :class:`OutputError`."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as temporary:
        temporary.write_bytes(data)


class InputFiles:
    """The files that a command reads, recognised under any name.

    Links, different spellings of a path and other aliases all lead to the same file on the same
    device. Missing files are ignored, since they cannot be overwritten.
    """

    def __init__(self, **files: Iterable[str | Path]) -> None:
        """files: by their role, as named in the error: ``rollouts``, ``tokenizer``."""
        self._names: dict[tuple[int, int], str] = {}
        for what, listed in files.items():
            for file in listed:
                if found := _identity(file):
                    self._names.setdefault(found, f"the {what} {str(file)!r}")

    def check_outputs(self, *outputs: Path) -> None:
        """Raise :class:`OutputError` if an output is one of the inputs."""
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
    """The permissions of the replaced file; None for a new file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is not a regular file")
    return stat.S_IMODE(mode)


def _unwritable(path: str | Path, error: OSError) -> OutputError:
    return OutputError("TP751", path=path, reason=system_reason(error))


def system_reason(error: OSError) -> str:
    """Why a file could not be read or written, in the system's words."""
    return str(error.strerror or error)


_LONGEST_NAME = 96
"""The most characters of an owner's or a repository's name on the Hub."""


def check_model(model: str, what: str) -> None:
    """Raise :class:`ConfigError` unless ``model`` is a checkpoint or could be the name of one.

    what: its role, such as ``senior``. A name that could be one on the Hub is not looked up here:
    the engine does that, and a failure takes half a minute.
    """
    model = os.path.expanduser(model)
    if os.path.isdir(model):
        if not any((Path(model) / name).exists() for name in ("config.json", "params.json")):
            raise ConfigError("TP761", what=what, model=model)
        return
    if os.path.exists(model) or "://" in model or is_hub_name(model):
        return
    if re.fullmatch(r"[\w-][\w.-]*", model) is None:  # old names on the Hub have no owner: gpt2
        raise ConfigError("TP762", what=what, model=model)


def is_hub_name(name: str) -> bool:
    """Whether ``name`` has the form owner/name and no local folder is called owner."""
    match = re.fullmatch(r"([\w-][\w.-]*)/([\w.:-]+)", name)
    if match is None or max(map(len, match.groups())) > _LONGEST_NAME:
        return False
    return not os.path.exists(match[1])
