"""The order of seniors: the user's own, as they were evaluated, the junior's own model first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tandem_plugin.errors import EvaluationError, OutputError
from tandem_plugin.files import read_file, told
from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["note_seniors", "noted_seniors", "order_file", "ordered_seniors"]


def order_file(out: Path) -> Path:
    """Where the order is noted in which the seniors of a folder of results were given."""
    return out / "seniors.txt"


def note_seniors(out: Path, names: Sequence[str]) -> None:
    """Add the seniors that are not noted yet, in their order.

    One name a line, only ever appended to: evaluations of several seniors may run side by side.
    Raises :class:`OutputError` where the file cannot be written.
    """
    known = noted_seniors(out)
    new = [f"{name}\n" for name in dict.fromkeys(names) if name not in known]
    if not new:
        return
    file = order_file(out)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab", buffering=0) as lines:
            lines.write("".join(new).encode())
    except OSError as error:
        raise OutputError(f"{str(file)!r} cannot be written: {told(error)}") from error


def noted_seniors(out: Path) -> list[str]:
    """The seniors of a folder of results, in the order in which they were first given."""
    file = order_file(out)
    if not os.path.lexists(file):  # a link that leads nowhere is no missing order
        return []
    try:
        return list(dict.fromkeys(read_file(file).decode("utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"The order of seniors {str(file)!r} cannot be read: {error}. Mend or remove it."
        ) from error


def ordered_seniors(
    runs: Iterable[Summary], noted: Sequence[str], asked: Sequence[str]
) -> list[str]:
    """Every senior of ``runs``, in the order of tables: the last is claimed to be the best.

    The junior's own model comes first, since everything is claimed relative to it; then seniors
    that nobody ordered, by name; then those of ``noted``; then those of ``asked``, which says the
    order by itself where it names all.
    """
    runs = list(runs)
    juniors = {
        role[key]
        for run in runs
        if (role := run.content.get("junior"))
        for key in ("name", "fingerprint")
        if role.get(key)
    }
    own = {
        run.senior
        for run in runs
        if run.senior in juniors or run.content["senior"].get("fingerprint") in juniors
    }

    def rank(name: str) -> tuple[int, int, str]:
        if name in asked:
            return 3, list(asked).index(name), name
        if name in own:
            return 0, 0, name
        return (2, list(noted).index(name), name) if name in noted else (1, 0, name)

    return sorted({run.senior for run in runs}, key=rank)
