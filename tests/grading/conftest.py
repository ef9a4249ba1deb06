"""One grader for all tests of grading: its workers start once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tandem_plugin.grading import Grader, GradingLimits


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    pytest.importorskip("sympy")
    with Grader(GradingLimits(seconds=1.5, workers=2)) as shared:
        yield shared
