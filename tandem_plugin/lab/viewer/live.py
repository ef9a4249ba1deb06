"""A page of rollouts that is written again whenever they have grown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import check_outputs, check_page, write_file
from tandem_plugin.files.checkpoints import model_files
from tandem_plugin.lab.rollouts.rollout import RolloutError
from tandem_plugin.lab.rollouts.rollout_file import (
    find_tokenizer,
    grades_file,
    rollout_files,
    run_file,
)
from tandem_plugin.lab.viewer.page import Live, ShownResponses, make_page, page_index
from tandem_plugin.progress import ShownProgress, waiting

_LOOKS_MS = 5000
"""How soon an open page looks for a newer one; it waits longer each time that it finds none."""

_NO_VOCABULARY = Vocabulary(("",), "a page without responses")

_State: TypeAlias = tuple[int, int, int]
"""Inode, size and time of change of a file."""


class RolloutsPage:
    """The page of a file or folder of rollouts.

    page: where to write it. tokenizer: None for the recorded one, or the one next to the rollouts.
    room: about how many bytes the page may have. Raises :class:`OutputError` if the page would
    replace an input, or a file that is no page of this package.
    """

    def __init__(self, rollouts: Path, page: Path, tokenizer: str | None, room: int) -> None:
        self.rollouts = rollouts
        self.page = page
        self._given = tokenizer
        self._room = room
        self._tokenizer = ""
        self._vocabulary: Vocabulary | None = None
        self._shown: ShownResponses | None = None
        self._states: dict[Path, _State] = {}
        self._is_live = False
        self._is_checked = False

    def write(self) -> dict[str, Any]:
        """Write the page of what is there; what it shows. Raises if that is nothing."""
        self._read(rollout_files(self.rollouts), is_growing=False)
        return self._write(None)

    def update(self) -> dict[str, Any] | None:
        """Write the page if there is more to show than at the last call; what it shows, or None.

        The rollouts may be missing yet, and a last line without its end is left for later. The page
        shows that it is still written, and reloads itself while it is open.
        """
        files = self._whole_files()
        states = {file: state for file in _with_grades(files) if (state := _state(file))}
        if self._is_live and states == self._states:
            return None
        if not self._has_only_grown(files, states):
            self._shown = None
        self._states = states
        if files:
            self._read(files, is_growing=True)
        self._is_live = True
        return self._write(Live(time.time_ns() // 10**6, _LOOKS_MS))

    def finish(self) -> dict[str, Any]:
        """Write the page as one that stays as it is; what it shows."""
        self.update()
        return self._write(None)

    def read_tokenizer(self) -> None:
        """Read the given tokenizer, if there is one; it is otherwise read with the first rollouts.

        Raises :class:`TokenizerError`.
        """
        if self._given:
            self._vocabulary = Vocabulary.from_path(self._given)

    def _whole_files(self) -> list[Path]:
        """The files of rollouts that have a line; none if there are no files yet."""
        try:
            files = rollout_files(self.rollouts)
        except RolloutError:
            return []
        return [file for file in files if file in self._states or _has_line(file)]

    def _has_only_grown(self, files: Sequence[Path], states: dict[Path, _State]) -> bool:
        """Whether what was read is still there, before what came since."""
        if self._shown is None or files[: len(self._shown.files)] != self._shown.files:
            return False
        for file, (inode, size, changed) in self._states.items():
            now = states.get(file)
            if now is None or now[0] != inode or now[1] < size:
                return False
            if now != (inode, size, changed) and (now[1] == size or file not in files):
                return False
        earlier = {*self._shown.files}
        new = {*states}.difference(self._states)
        return not any(grades_file(file) in new for file in earlier)

    def _read(self, files: Sequence[Path], is_growing: bool) -> None:
        """Take in what came since the last call."""
        chosen = self._given or self._tokenizer or find_tokenizer(self.rollouts)
        inputs: dict[str, Iterable[Path]] = {
            "rollouts": files,
            "settings": map(run_file, files),
            "grades": map(grades_file, files),
            "tokenizer": model_files(chosen),
        }
        check_outputs(inputs, self.page)
        self._check_page()
        if self._vocabulary is None:
            self._vocabulary = Vocabulary.from_path(chosen)
        self._tokenizer = chosen
        if self._shown is None:
            self._shown = ShownResponses(self._vocabulary, are_dumps=self.rollouts.is_dir())
        shown = self._shown
        shown.add_files(files[len(shown.files) :])
        with ShownProgress() as progress:
            task = progress.add_task("list", total=sum(file.stat().st_size for file in files))
            shown.read(lambda count: progress.advance(task, count), is_growing)
            task = progress.add_task("view", total=len(shown.listed))
            shown.take(self._room, lambda: progress.advance(task))
        if not is_growing or shown.listed or shown.unread:
            self._check(shown, files)

    def _check_page(self) -> None:
        if not self._is_checked:
            check_page(self.page)
        self._is_checked = True

    def _check(self, shown: ShownResponses, files: Sequence[Path]) -> None:
        """Raise if the tokenizer belongs to a different run, or nothing can be shown."""
        name = str(files[0] if len(files) == 1 else files[0].parent)
        if len(shown.misread) > len(shown.responses):
            raise TokenizerError(
                "view-tokenizer-differs",
                tokenizer=self._tokenizer,
                name=name,
                misread=len(shown.misread),
                first=shown.misread[0],
            )
        if not shown.responses:
            raise RolloutError("view-nothing-to-show", name=name, reason=first_unread(shown))

    def _write(self, live: Live | None) -> dict[str, Any]:
        self._check_page()
        shown = self._shown or ShownResponses(_NO_VOCABULARY)
        with waiting("write the page"):
            index = page_index(shown, live)
            title = "/".join(self.rollouts.resolve().parts[-2:])
            write_file(self.page, make_page(title, index, shown.parts))
        return {
            "page": str(self.page),
            "responses": len(shown.responses),
            "problems": len(index["problems"]),
            "steps": len({response.step for response, _ in shown.responses} - {None}),
            "of": index["whole"],
            "without_room": shown.without_room,
            "unread_lines": len(shown.unshown),
            "first_unread": first_unread(shown) if shown.unshown else None,
            "bytes": self.page.stat().st_size,
        }


def follow(page: RolloutsPage, on_written: Callable[[dict[str, Any]], None]) -> None:
    """Keep the page current until Ctrl-C; then write it as one that stays as it is.

    on_written: called with what the page shows. Writing takes at most a tenth of the time.
    """
    while True:
        began = time.monotonic()
        if written := page.update():
            on_written(written)
        time.sleep(max(1.0, 9 * (time.monotonic() - began)))


def first_unread(shown: ShownResponses) -> str:
    """Where the first line is that cannot be shown, and why."""
    if not shown.unshown:
        return "it is empty"
    file, line, why = shown.unshown[0]
    return f"{f'{file}, ' if file else ''}line {line}: {why.rstrip('.')}"


def _has_line(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            return content.readline().endswith(b"\n")
    except OSError:
        return False


def _with_grades(files: Iterable[Path]) -> Iterable[Path]:
    for file in files:
        yield file
        yield grades_file(file)


def _state(file: Path) -> _State | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
