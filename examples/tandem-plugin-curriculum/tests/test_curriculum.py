from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tandem_plugin_curriculum

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, make_schedule
from tandem_plugin.plugins import using_plugins

VOCABULARY = Vocabulary(("Once", "Ġupon", "Ġa", "Ġtime", ".", "x"), "a test")
TOKENS = [0, 1, 2, 3, 4, 5, 5, 5, 1, 5] * 40


@pytest.fixture(autouse=True)
def plugged() -> Iterator[None]:
    """The plugin as if it were installed, so that the tests run from a checkout as well."""
    with using_plugins(tandem_plugin_curriculum):
        yield


def rules(**settings: Any) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping(settings), VOCABULARY)


@pytest.mark.parametrize(
    ("step", "p"), [(0, 1.0), (1, 0.875), (2, 0.75), (3, 0.625), (4, 0.5), (5, 0.5), (10**9, 0.5)]
)
def test_p_goes_from_start_to_end_and_stays_there(step: int, p: float) -> None:
    schedule: Any = make_schedule("curriculum", {"warmup_steps": 4, "training_step": step})
    assert schedule.p == p


@pytest.mark.parametrize("step", [0, 3, 5, 10, 50])
def test_at_each_step_it_is_the_word_schedule_of_that_p(step: int) -> None:
    curriculum = rules(schedule="curriculum", p_start=0.1, p_end=0.9, warmup_steps=10, cap=3)
    at_step = curriculum.for_step(step)
    word = rules(schedule="word", p=at_step.schedule.p, cap=3).default  # type: ignore[attr-defined]
    for seed in range(20):
        assert at_step.replay(TOKENS, seed) == word.replay(TOKENS, seed)
    assert at_step.fingerprint != word.fingerprint
