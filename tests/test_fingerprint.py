from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from algorithm_1 import boundary_set
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import (
    BoundarySet,
    ConfigError,
    TandemConfig,
    TandemRules,
    Vocabulary,
    fingerprint,
    hookimpl,
    make_schedule,
)
from tandem_plugin.plugins import using_plugins
from tandem_plugin.schedules import StepSchedule


def of(name: str = "word", ids: tuple[int, ...] = (1, 2), **parameters: object) -> str:
    return fingerprint(make_schedule(name, parameters), boundary_set(ids))


@pytest.mark.parametrize(
    "other",
    [of(p=0.4), of(cap=31), of(ids=(1,)), of(ids=(1, 3)), of(ids=()), of("token", p=0.5)],
)
def test_fingerprint_changes_with_schedule_parameters_and_boundaries(other: str):
    assert other != of()


def test_fingerprint_changes_with_the_version(monkeypatch: pytest.MonkeyPatch):
    before = of()
    monkeypatch.setattr("tandem_plugin.rules.__version__", "999.0")
    assert of() != before


def test_fingerprint_ignores_padding_of_the_vocabulary():
    table = np.zeros(8, np.bool_)
    table[3] = True
    padded = np.concatenate([table, np.zeros(100, np.bool_)])
    schedule = make_schedule("word", {})
    assert fingerprint(schedule, BoundarySet("word", table)) == fingerprint(
        schedule, BoundarySet("word", padded)
    )


@dataclass(frozen=True, slots=True)
class ManySchedule:
    """One parameter of every type."""

    name: ClassVar[str] = "many"
    boundaries: ClassVar[str] = "every"

    x: float = 0.5
    n: int = 1
    flag: bool = False
    text: str = "a"
    side: Literal["left", "right"] = "left"

    def start(self, u: Any) -> Any:
        return u < 0.5

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return author ^ is_boundary, run + 1


class Side(str, Enum):
    LEFT = "left"


many = ModuleType("tandem_many")


@hookimpl
def register_schedules(register: Any) -> None:
    register(ManySchedule)


many.register_schedules = register_schedules  # type: ignore[attr-defined]

FLOATS = st.one_of(
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, 0.1, np.float32(0.1), np.float64(0.1), True, False]),
    st.sampled_from([np.float64(-0.0), np.float32(-0.0), np.float16(1), np.int64(1), "0.5", "1"]),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), 5e-324, -5e-324, 0.1 + 0.2, 0.3]),
    st.floats(0, 1),
    st.floats(0, 1).map(np.float64),
    st.floats(0, 1, width=32).map(np.float32),
)
INTEGERS = st.one_of(
    st.sampled_from([0, 1, 1.0, True, np.int64(1), "1", 2**31 - 1, 2**63 - 1, 10**5_000]),
    st.integers(1, 3),
)
CHOSEN = st.one_of(
    st.fixed_dictionaries({}, optional={"p": FLOATS, "cap": INTEGERS}).map(lambda p: ("word", p)),
    st.fixed_dictionaries({"p": FLOATS}).map(lambda p: ("token", p)),
    st.fixed_dictionaries({"p": FLOATS}).map(lambda p: ("sentence", p)),
    st.fixed_dictionaries({}, optional={"p": FLOATS, "n": INTEGERS}).map(lambda p: ("chunk", p)),
    st.sampled_from(["senior", "junior", np.str_("junior"), "Junior"]).map(
        lambda first: ("step", {"first": first})
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "x": FLOATS,
            "n": INTEGERS,
            "flag": st.sampled_from([True, False, 1, 0, np.bool_(True)]),
            "text": st.sampled_from(["a", "A", "1", "\ud800", "\\ud800", np.str_("a")]),
            "side": st.sampled_from(["left", Side.LEFT, np.str_("left"), "right"]),
        },
    ).map(lambda p: ("many", p)),
)


def made(chosen: tuple[str, dict[str, Any]]) -> Any | None:
    try:
        return make_schedule(*chosen)
    except ConfigError:
        return None


@given(CHOSEN, CHOSEN)
def test_fingerprints_are_equal_where_schedules_are_and_only_there(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]
):
    with using_plugins(many):
        first, second = made(one), made(other)
        if first is None or second is None:
            return
        boundaries = boundary_set((1, 2))
        same = fingerprint(first, boundaries) == fingerprint(second, boundaries)
        assert same == (first == second)
        # What travels with a request makes the same schedule again.
        rules = TandemRules(TandemConfig(), Vocabulary(("a", "Ġb", "Ċ", ".ĊĊ"), "made up"))
        rule = rules.for_schedule(first)
        resolved = rules.for_request(rule.request(1).to_wire())
        assert resolved is not None
        assert resolved.rule.fingerprint == rule.fingerprint


def test_schedule_made_by_hand_has_the_fingerprint_of_the_equal_one_made_by_name():
    ids = boundary_set((1, 2))
    with using_plugins(many):
        by_name = fingerprint(make_schedule("many", {"x": 1, "side": "left"}), ids)
        assert fingerprint(ManySchedule(x=1), ids) == by_name
        assert fingerprint(ManySchedule(x=-0.0), ids) == fingerprint(ManySchedule(x=0), ids)
        assert fingerprint(ManySchedule(x=np.float64(1)), ids) == by_name
        assert fingerprint(ManySchedule(x=1.0, side=Side.LEFT), ids) == by_name  # type: ignore[arg-type]
        with refused("schedule-parameter-invalid", parameter="n", value=1.0):
            fingerprint(ManySchedule(n=1.0), ids)  # type: ignore[arg-type]
    assert fingerprint(StepSchedule(first=np.str_("junior")), ids) == of("step", first="junior")  # type: ignore[arg-type]
