"""The cases of a part: what was checked, whether it passed, and what was found."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from results import Results, Table


class Cases:
    """Checks of one engine or trainer, each a case of the part's results.

    ``passed`` is true, false, or None where nothing could be shown, which says so and claims
    nothing.
    """

    def __init__(self, results: Results, subject: str) -> None:
        """results: the part's. subject: what is checked."""
        self._results, self._subject = results, subject

    def has(self, *checks: str) -> bool:
        """Whether all of these are there and none failed: they need not be run again."""
        cases = [self._results.cases.get(f"{self._subject}: {check}") for check in checks]
        return all(case is not None and case["passed"] is not False for case in cases)

    def add(self, check: str, passed: bool | None, found: str, **figures: Any) -> None:
        """Add one case; the part's file holds it when this returns."""
        case = {"subject": self._subject, "check": check, "passed": passed, "found": found}
        self._results.add(f"{self._subject}: {check}", case | figures)

    @contextmanager
    def failing(self, check: str) -> Iterator[None]:
        """Within, an exception is a failed case: the next subject is checked all the same."""
        self._results.cases.pop(f"{self._subject}: {check}", None)  # of a run before
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            said = " ".join(str(error).split())[:400]
            self.add(check, False, f"{type(error).__name__}: {said} (see the log)")


def check_table(title: str, content: Mapping[str, Any]) -> Table:
    """One row a case."""
    words = {True: "passed", False: "**failed**", None: "nothing shown"}
    rows: Sequence[Sequence[str]] = [
        [case["subject"], case["check"], words[case["passed"]], case["found"].replace("|", "/")]
        for case in content["cases"].values()
    ]
    return Table(
        title=title,
        columns=["engine", "check", "result", "found"],
        rows=rows,
        unit="each row is one check",
    )
