"""A page of rollouts that is written again whenever they have grown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import PAGE_MARK, check_outputs, check_page, write_file
from tandem_plugin.files.checkpoints import model_files
from tandem_plugin.lab.rollouts.rollout import RolloutError
from tandem_plugin.lab.rollouts.rollout_file import (
    find_tokenizer,
    grades_file,
    rollout_files,
    rollouts_folder,
    run_file,
)
from tandem_plugin.lab.viewer.page import Live, ShownResponses, make_page, page_index
from tandem_plugin.lab.viewer.table import TABLE_MARK, table_json, table_rows
from tandem_plugin.progress import ShownProgress, waiting
from tandem_plugin.training.validation_log import Validation, read_validations

_LOOKS_MS = 5000
"""How soon an open page looks for a newer one; it waits longer each time that it finds none."""

_State: TypeAlias = tuple[int, int, int]
"""Inode, size and time of change of a file."""


class RolloutsPage:
    """The page of a file or folder of rollouts, or of several runs side by side.

    page: where to write it. tokenizer: None for the recorded one, or the one next to the rollouts.
    room: about how many bytes the page may have. further: the rollouts of other runs. Raises
    :class:`OutputError` if the page would replace an input, or a file that is no page of this
    package, and :class:`RolloutError` if two of the runs are the same.
    """

    def __init__(
        self,
        rollouts: Path,
        page: Path,
        tokenizer: str | None,
        room: int,
        *,
        further: Sequence[Path] = (),
    ) -> None:
        self.rollouts = rollouts
        self.page = page
        self._runs = [rollouts, *further]
        self._names = run_names(self._runs)
        self._given = tokenizer
        self._room = room
        self._tokenizers: dict[Path, str] = {}
        self._vocabularies: dict[str, Vocabulary] = {}
        self._shown: ShownResponses | None = None
        self._states: dict[Path, _State] = {}
        self._validations: list[list[Validation]] = []
        self._is_live = False
        self._is_checked = False
        self._mark = PAGE_MARK

    def write(self) -> dict[str, Any]:
        """Write the page of what is there; what it shows. Raises if that is nothing."""
        self._read([rollout_files(run) for run in self._runs], is_growing=False)
        return self._write(None)

    def update(self) -> dict[str, Any] | None:
        """Write the page if there is more to show than at the last call; what it shows, or None.

        The rollouts may be missing yet, and a last line without its end is left for later. The page
        shows that it is still written, and reloads itself while it is open.
        """
        files = [self._whole_files(run) for run in self._runs]
        inputs = _with_grades(file for some in files for file in some)
        states = {file: state for file in inputs if (state := _state(file))}
        validations = self._read_validations()
        if self._is_live and (states, validations) == (self._states, self._validations):
            return None
        if not self._has_only_grown(files, states):
            self._shown = None
        self._states = states
        if any(files):
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
            self._vocabulary_of(self._given)

    def _vocabulary_of(self, tokenizer: str) -> Vocabulary:
        if tokenizer not in self._vocabularies:
            self._vocabularies[tokenizer] = Vocabulary.from_path(tokenizer)
        return self._vocabularies[tokenizer]

    def _read_validations(self) -> list[list[Validation]]:
        """The trainer's own validations of each run, from next to its rollouts."""
        return [read_validations(rollouts_folder(run)) for run in self._runs]

    def _whole_files(self, run: Path) -> list[Path]:
        """The files of a run's rollouts that have a line; none if there are no files yet."""
        try:
            files = rollout_files(run)
        except RolloutError:
            return []
        return [file for file in files if file in self._states or _has_line(file)]

    def _has_only_grown(self, files: Sequence[Sequence[Path]], states: dict[Path, _State]) -> bool:
        """Whether what was read of each run is still there, before what came since."""
        if self._shown is None:
            return False
        for run, its_files in enumerate(files):
            before = self._shown.files_of(run)
            if list(its_files[: len(before)]) != before:
                return False
        earlier = {*self._shown.files}
        for file, (inode, size, changed) in self._states.items():
            now = states.get(file)
            if now is None or now[0] != inode or now[1] < size:
                return False
            if now != (inode, size, changed) and (now[1] == size or file not in earlier):
                return False
        new = {*states}.difference(self._states)
        return not any(grades_file(file) in new for file in earlier)

    def write_table(self) -> dict[str, Any]:
        """Write all responses as a table, in place of the page; what it has.

        It is the JSON of what ``wandb.Table`` takes, with the columns of :data:`COLUMNS`. Raises
        like :meth:`write`.
        """
        self._mark = TABLE_MARK
        shown = self._list([rollout_files(run) for run in self._runs], is_growing=False)
        with ShownProgress() as progress:
            task = progress.add_task("table", total=len(shown.listed))
            rows = table_rows(shown, lambda: progress.advance(task))
        self._check(shown, len(rows))
        write_file(self.page, table_json(rows))
        return {
            "table": str(self.page),
            "responses": len(rows),
            "unread_lines": len(shown.unshown),
            "first_unread": first_unread(shown) if shown.unshown else None,
            "bytes": self.page.stat().st_size,
        }

    def _read(self, files: Sequence[Sequence[Path]], is_growing: bool) -> None:
        """Take in what came since the last call; files: of each run."""
        shown = self._list(files, is_growing)
        with ShownProgress() as progress:
            task = progress.add_task("view", total=len(shown.listed))
            shown.take(self._room, lambda: progress.advance(task))
        if not is_growing or shown.listed or shown.unread:
            self._check(shown, len(shown.responses))

    def _list(self, files: Sequence[Sequence[Path]], is_growing: bool) -> ShownResponses:
        """List the responses that came since the last call."""
        self._choose_tokenizers(files)
        if self._shown is None:
            self._shown = ShownResponses(self._names)
        shown = self._shown
        for number, (run, its_files) in enumerate(zip(self._runs, files, strict=True)):
            if new := its_files[len(shown.files_of(number)) :]:
                vocabulary = self._vocabulary_of(self._tokenizers[run])
                shown.add_files(new, vocabulary, run=number, are_dumps=run.is_dir())
        with ShownProgress() as progress:
            task = progress.add_task("list", total=sum(f.stat().st_size for f in shown.files))
            shown.read(lambda count: progress.advance(task, count), is_growing)
        return shown

    def _choose_tokenizers(self, files: Sequence[Sequence[Path]]) -> None:
        """The tokenizer of each run that has files; the page must not replace what is read."""
        every = [file for some in files for file in some]
        for run, its_files in zip(self._runs, files, strict=True):
            if its_files and run not in self._tokenizers:
                self._tokenizers[run] = self._given or find_tokenizer(run)
        tokenizers = {*self._tokenizers.values()}
        inputs: dict[str, Iterable[Path]] = {
            "rollouts": every,
            "settings": map(run_file, every),
            "grades": map(grades_file, every),
            "tokenizer": [file for chosen in tokenizers for file in model_files(chosen)],
        }
        check_outputs(inputs, self.page)
        self._check_page()

    def _check_page(self) -> None:
        if not self._is_checked:
            check_page(self.page, self._mark)
        self._is_checked = True

    def _check(self, shown: ShownResponses, count: int) -> None:
        """Raise if the tokenizer belongs to a different run, or nothing can be shown."""
        files = shown.files
        name = str(files[0] if len(files) == 1 else files[0].parent)
        if len(shown.misread) > count:
            raise TokenizerError(
                "view-tokenizer-differs",
                tokenizer=", ".join({*self._tokenizers.values()}),
                name=name,
                misread=len(shown.misread),
                first=shown.misread[0],
            )
        if not count:
            raise RolloutError("view-nothing-to-show", name=name, reason=first_unread(shown))

    def _write(self, live: Live | None) -> dict[str, Any]:
        self._check_page()
        shown = self._shown or ShownResponses(self._names)
        with waiting("write the page"):
            self._validations = self._read_validations()
            index = page_index(shown, live, self._validations)
            title = " and ".join(self._names)
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


def run_names(runs: Sequence[Path]) -> list[str]:
    """The name of each run: its place below the folder that they have in common.

    What the ends of all places have in common is left out: ``grpo`` and ``tandem`` of
    ``runs/grpo/rollouts`` and ``runs/tandem/rollouts``. Raises :class:`RolloutError` if two are the
    same.
    """
    places = [run.resolve() for run in runs]
    if len(runs) == 1:
        return ["/".join(places[0].parts[-2:])]
    if len({*places}) < len(places):
        raise RolloutError(
            "view-run-twice", run=next(r for r in runs if places.count(r.resolve()) > 1)
        )
    folder = os.path.commonpath(places)
    parts = [list(place.relative_to(folder).parts) or [place.name] for place in places]
    while all(len(some) > 1 for some in parts) and len({some[-1] for some in parts}) == 1:
        parts = [some[:-1] for some in parts]
    return ["/".join(some) for some in parts]


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
