"""A share of the responses by the senior alone: whose they are, how many, what stays as it was."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import philox
import pytest
from algorithm_1 import boundary_set
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from scipy import stats

from tandem_plugin import (
    TandemConfig,
    TandemRules,
    Vocabulary,
    fingerprint,
    hookimpl,
    list_schedules,
    make_schedule,
    replay,
    replay_batch,
)
from tandem_plugin._draws import MAX_SEED, draws, response_draws
from tandem_plugin._replay import are_alone
from tandem_plugin.plugins import using_plugins
from tandem_plugin.rules import code_digest
from tandem_plugin.schedules import schedule_parameters
from tandem_plugin.schedules.alone import plain_class, share_alone

SEEDS = st.integers(0, MAX_SEED)
TOKENS = st.lists(st.integers(0, 40), max_size=60)
SHARES = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 1.0])
NAMES = st.sampled_from(list(list_schedules()))
VOCABULARY = Vocabulary(("a", "Ġb", "c", "ĊĊ"), "a test")


@given(NAMES, TOKENS, st.sets(st.integers(0, 31), max_size=8), SEEDS, SHARES)
def test_a_response_is_the_seniors_or_as_without_the_share_by_its_seed(
    name: str, tokens: list[int], ids: set[int], seed: int, share: float
) -> None:
    boundaries = boundary_set(ids)
    plain = replay(tokens, seed, make_schedule(name, {}), boundaries)
    found = replay(tokens, seed, make_schedule(name, {"alone": share}), boundaries)
    is_alone = philox.response_draw(seed) < share
    assert found.tolist() == ([1] * len(tokens) if is_alone else plain.tolist())


@pytest.mark.parametrize("name", list_schedules())
def test_a_share_of_0_leaves_no_trace(name: str) -> None:
    plain, zero = make_schedule(name, {}), make_schedule(name, {"alone": 0})
    assert type(zero) is type(plain)
    assert zero == plain
    assert "alone" not in schedule_parameters(zero)
    boundaries = boundary_set({1})
    assert fingerprint(zero, boundaries) == fingerprint(plain, boundaries)
    settings = {"schedule": name, "boundaries": "word"}
    rules = TandemRules(TandemConfig.from_mapping(settings), VOCABULARY)
    given_zero = TandemRules(TandemConfig.from_mapping({**settings, "alone": 0}), VOCABULARY)
    assert given_zero.default.settings() == rules.default.settings()
    assert given_zero.default.request(7).to_wire() == rules.default.request(7).to_wire()
    assert "alone" not in TandemConfig.from_mapping(settings).settings()


N = 20_000
ALPHA = 0.001


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_of_responses_is_the_one_that_is_set(share: float) -> None:
    count = int(are_alone(make_schedule("word", {"alone": share}), range(N)).sum())
    assert stats.binomtest(count, N, share).pvalue > ALPHA
    # Power: a share that is off by 0.02 is found with probability above 0.99.
    shift, deviation = 0.02 * math.sqrt(N), math.sqrt(share * (1 - share))
    assert stats.norm.cdf(shift / deviation - stats.norm.isf(ALPHA / 2)) > 0.99


def test_responses_alone_say_nothing_of_the_draws_of_their_positions() -> None:
    """Of the other responses, those that begin with the senior are as many as without a share."""
    first = np.array([draws(seed, 1)[0] for seed in range(N)])
    whole = response_draws(range(N))
    table = [[int(((whole < 0.25) == a) @ ((first < 0.5) == b)) for b in (0, 1)] for a in (0, 1)]
    assert stats.chi2_contingency(table).pvalue > ALPHA
    # Power: a quarter whose first draws are below 0.5 in 55%, and not in half, is found in 99%.
    effect = 0.05 * math.sqrt(N * 0.25 * 0.75) / 0.5
    assert stats.norm.cdf(effect - stats.norm.isf(ALPHA / 2)) > 0.99


def test_requests_and_records_have_the_share_and_another_engine_rejects_it() -> None:
    rules = TandemRules(TandemConfig(schedule="word", alone=0.25), VOCABULARY)
    wire = rules.default.request(7).to_wire()
    assert wire["alone"] == rules.default.settings()["alone"] == 0.25
    resolved = rules.for_request(wire)
    assert resolved is not None
    assert resolved.rule == rules.default
    plain = TandemRules(TandemConfig(schedule="word"), VOCABULARY)
    assert plain.fingerprint != rules.fingerprint
    fingerprinted = {"seed": 7, "fingerprint": rules.fingerprint}
    with refused("request-rules-differ"):
        plain.for_request(fingerprinted)


def test_a_request_sets_the_share_like_any_parameter() -> None:
    rules = TandemRules(TandemConfig(schedule="word", alone=0.25), VOCABULARY)

    def share(**request: Any) -> float:
        resolved = rules.for_request({"seed": 7, **request})
        assert resolved is not None
        return share_alone(resolved.rule.schedule)

    assert share() == share(p=0.3) == 0.25
    assert share(alone=0) == share(schedule="chunk") == 0
    assert share(schedule="chunk", alone=1) == 1


@dataclass(frozen=True)
class Late:
    """A third party's schedule with a check of its own; its runs are never 0."""

    name: ClassVar[str] = "late"
    boundaries: ClassVar[str] = "every"
    offset: int = 5

    def __post_init__(self) -> None:
        if self.offset < 1:
            raise ValueError("too early")

    def start(self, u: Any) -> Any:
        return u < 0.5

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return author ^ (u < 0.1), run - self.offset


class LatePlugin:
    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(Late)


def test_a_plugins_schedule_has_the_share_too() -> None:
    tokens, boundaries = list(range(30)), boundary_set({1})
    with using_plugins(LatePlugin()):
        plain, shared = make_schedule("late", {}), make_schedule("late", {"alone": 0.5})
        assert plain_class(type(shared)) is Late
        assert code_digest(shared) is not None
        prints = {fingerprint(one, boundaries) for one in (plain, shared)}
        with refused("schedule-parameters-rejected"):
            make_schedule("late", {"offset": 0, "alone": 0.5})
    assert len(prints) == 2
    seeds = list(range(40))
    alone = are_alone(shared, seeds)
    assert 0 < alone.sum() < len(seeds)
    every = [replay_batch([tokens] * len(seeds), seeds, one, boundaries) for one in (plain, shared)]
    for is_alone, own, found in zip(alone, *every, strict=True):
        assert found.tolist() == ([1] * len(tokens) if is_alone else own.tolist())


@pytest.mark.parametrize("share", [-0.1, 1.1, "0.25", True, None, float("nan")])
def test_a_share_that_is_no_probability_is_refused(share: object) -> None:
    with refused("parameter-not-probability", name="alone", value=share):
        make_schedule("step", {"alone": share})


def test_a_schedule_with_a_share_crosses_processes() -> None:
    schedule = make_schedule("word", {"cap": 3, "alone": 0.25})
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert hash(again) == hash(schedule)
