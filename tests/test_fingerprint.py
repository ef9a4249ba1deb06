from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from algorithm_1 import boundary_set

from tandem_plugin import BoundarySet, fingerprint, make_schedule, schedules

WORD = {"p": 0.5, "cap": 32}


def of(name: str = "word", ids: tuple[int, ...] = (1, 2), **parameters: object) -> str:
    return fingerprint(make_schedule(name, parameters), boundary_set(ids))


def test_fingerprint_is_16_hexadecimal_digits():
    assert re.fullmatch(r"[0-9a-f]{16}", of())


def test_fingerprint_is_the_same_every_time():
    assert of() == of(**WORD)


@pytest.mark.parametrize(
    "other",
    [of(p=0.4), of(cap=31), of(ids=(1,)), of(ids=(1, 3)), of(ids=()), of("token", p=0.5)],
)
def test_fingerprint_changes_with_schedule_parameters_and_boundaries(other: str):
    assert other != of()


def test_schedules_without_parameters_have_their_own_fingerprints():
    names = tuple(schedules())
    assert len({of(name) for name in names}) == len(names)


def test_fingerprint_changes_with_the_version(monkeypatch: pytest.MonkeyPatch):
    before = of()
    monkeypatch.setattr(sys.modules["tandem_plugin.fingerprint"], "__version__", "999.0")
    assert of() != before


def test_fingerprint_ignores_padding_of_the_vocabulary():
    table = np.zeros(8, np.bool_)
    table[3] = True
    padded = np.concatenate([table, np.zeros(100, np.bool_)])
    schedule = make_schedule("word", {})
    assert fingerprint(schedule, BoundarySet("word", table)) == fingerprint(
        schedule, BoundarySet("word", padded)
    )


def test_whole_numbers_and_floats_of_one_value_have_one_fingerprint():
    assert of(p=1) == of(p=1.0) == of(p=np.float32(1))
    assert of(p=0) == of(p=0.0)
