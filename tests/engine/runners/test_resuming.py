"""Requests that enter a batch together: each stands where its tokens, one by one, would lead it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import philox
import torch
from algorithm_1 import boundary_set
from automata import automaton_rule
from host_memory import host_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import (
    make_schedule,
)
from tandem_plugin._draws import MAX_SEED, draws
from tandem_plugin.engine.record import AuthoredRequest
from tandem_plugin.engine.runners.resuming import Resumed, fill_draws, walk_all
from tandem_plugin.engine.runners.v1.authors import BatchAuthors
from tandem_plugin.engine.runners.v2.authors import DeviceAuthors
from tandem_plugin.rules import Rule
from tandem_plugin.schedules import Schedule, WordSchedule
from tandem_plugin.schedules.alone import RUN_ALONE
from tandem_plugin.schedules.schedule import has_walk

IDS, ROOM = 12, 60


@dataclass(frozen=True, slots=True)
class Countdown:
    """A plugin's schedule of steps alone: hands over every so many boundaries, however drawn."""

    name: ClassVar[str] = "countdown"
    boundaries: ClassVar[str] = "word"
    every: int = 2

    def start(self, u: Any) -> Any:
        return u < 0.5

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        run = run + 1 * is_boundary
        over = run >= self.every
        return author ^ (over & (u < 0.7)), run * ~over


@dataclass(frozen=True, slots=True)
class Stubborn(WordSchedule):
    """A plugin's schedule that changes a built-in one's steps, and inherits that one's walk."""

    name: ClassVar[str] = "stubborn"

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        author, run = WordSchedule.advance(self, author, run, is_boundary, u)
        return author | (u < 0.2), run


P = st.sampled_from([0.0, 0.3, 0.5, 1.0])
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(lambda p, cap: make_schedule("word", {"p": p, "cap": cap}), P, st.integers(1, 9)),
    st.builds(lambda p, n: make_schedule("chunk", {"p": p, "n": n}), P, st.integers(1, 9)),
    *(
        st.builds(lambda p, name=name: make_schedule(name, {"p": p}), P)
        for name in ("token", "sentence", "step-bernoulli")
    ),
    st.builds(
        lambda first: make_schedule("step", {"first": first}), st.sampled_from(["senior", "junior"])
    ),
    st.sampled_from([make_schedule("solo", {}), make_schedule("junior", {})]),
    st.builds(Countdown, st.integers(1, 3)),
    st.builds(Stubborn, P, st.integers(1, 9)),
    st.builds(
        lambda name, alone: make_schedule(name, {"alone": alone}),
        st.sampled_from(["word", "step", "junior"]),
        st.sampled_from([0.5, 1.0]),
    ),
)
RULES = st.builds(automaton_rule, st.integers(0, 30), st.just(IDS - 2), P) | st.builds(
    lambda schedule, ids: Rule(schedule, boundary_set(ids), f"{schedule} {sorted(ids)}"),
    SCHEDULES,
    st.sampled_from([frozenset(), frozenset({1, 5}), frozenset(range(IDS))]),
)
SEEDS = st.integers(0, MAX_SEED)
TOKENS = st.lists(st.integers(0, IDS - 1), max_size=25)


@st.composite
def requests(draw: st.DrawFn) -> list[Resumed]:
    """Requests of few rules, of all lengths, those that have written nothing among them."""
    rules = draw(st.lists(RULES, min_size=1, max_size=3))
    return draw(
        st.lists(
            st.builds(Resumed, st.sampled_from(rules), SEEDS, TOKENS, TOKENS | st.just([])),
            min_size=1,
            max_size=8,
        )
    )


def token_by_token(request: Resumed) -> tuple[list[bool], int]:
    """The authors of a response and of the token behind it, and the run there, by steps alone."""
    schedule, boundaries = request.rule.schedule, request.rule.boundaries
    tokens = [*request.prefix, *request.output]
    u = draws(request.seed, len(tokens) + 1)
    author, run = schedule.start(u[:1]), np.zeros(1, dtype=np.int64)
    if philox.response_draw(request.seed) < getattr(schedule, "alone", 0):
        author, run = np.ones(1, dtype=np.bool_), np.full(1, RUN_ALONE)
    authors = [bool(author[0])]
    for t, token in enumerate(tokens):
        author, run = schedule.advance(author, run, boundaries.read([token]), u[t + 1 : t + 2])
        authors.append(bool(author[0]))
    return authors, int(run[0])


@given(requests())
def test_requests_that_resume_together_stand_where_each_would_token_by_token(
    entering: list[Resumed],
) -> None:
    for request, walk in zip(entering, walk_all(entering), strict=True):
        authors, run = token_by_token(request)
        assert walk.authors.tolist() == authors
        assert walk.author == authors[-1]
        assert walk.run == run


@given(requests())
def test_draws_of_requests_begin_where_their_output_does(entering: list[Resumed]) -> None:
    table = np.full((len(entering), ROOM), np.nan)
    lengths = [ROOM - place for place in range(len(entering))]
    rows = [row[:length] for row, length in zip(table, lengths, strict=True)]
    fill_draws(rows, entering)
    for row, length, request in zip(table, lengths, entering, strict=True):
        skipped = len(request.prefix)
        assert row[:length].tolist() == draws(request.seed, skipped + length)[skipped:].tolist()
        assert np.isnan(row[length:]).all()


@settings(max_examples=60)
@given(requests(), st.data())
def test_both_runners_go_on_from_where_requests_resume(
    entering: list[Resumed], data: st.DataObject
) -> None:
    """All enter in one step; then each writes some tokens more, by what the engine says."""
    size = len(entering)
    host = BatchAuthors(size, ROOM + 1)
    device = DeviceAuthors(size, IDS, torch.device("cpu"), host_memory, record=True)
    requests, slot_requests = [], []
    for row, one in enumerate(entering):
        requests.append(
            AuthoredRequest(one.rule, one.seed, list(one.output), prefix=list(one.prefix))
        )
        host.add(row, requests[row], ROOM)
        slot_requests.append(
            device.add(row, one.rule, one.seed, list(one.output), ROOM, list(one.prefix))
        )
    device.write_staged()
    every, expected = torch.arange(size), [list(token_by_token(one)[0]) for one in entering]
    for one, slot_request, authors in zip(entering, slot_requests, expected, strict=True):
        assert slot_request.author == authors[len(one.prefix) + len(one.output)]
    for _ in range(data.draw(st.integers(1, 4))):
        said = [
            token_by_token(Resumed(p.rule, p.seed, p.output, p.prefix))[0][-1] for p in requests
        ]
        assert host.next_authors(size).tolist() == said
        assert device.of(every).tolist() == said
        tokens = data.draw(st.lists(st.integers(0, IDS - 1), min_size=size, max_size=size))
        for request, token in zip(requests, tokens, strict=True):
            request.output.append(token)
        device.advance(every, torch.ones(size, dtype=torch.int32), torch.tensor(tokens))
    host.next_authors(size)
    for row, (request, slot_request) in enumerate(zip(requests, slot_requests, strict=True)):
        whole, _ = token_by_token(
            Resumed(request.rule, request.seed, request.output, request.prefix)
        )
        written = whole[len(request.prefix) : -1]
        assert device.recorded(slot_request, len(request.output)) == written
        assert host.remove(row) is request
        assert request.authors == written


def test_tokens_may_come_several_at_once() -> None:
    rule, size = Rule(make_schedule("token", {}), boundary_set({1}), "t"), 9
    batch, requests = BatchAuthors(size, 90), [AuthoredRequest(rule, i, []) for i in range(size)]
    for row, request in enumerate(requests):
        batch.add(row, request, 80)
    batch.next_authors(size)
    for request in requests:
        request.output.extend([0, 1, 0])
    expected = [rule.walk_batch([[0, 1, 0]], [row])[0].author for row in range(size)]
    assert batch.next_authors(size).tolist() == expected
    assert len(set(expected)) == 2


def test_a_request_that_leaves_before_its_first_step_has_its_record() -> None:
    rule = Rule(make_schedule("token", {}), boundary_set(range(IDS)), "t")
    batch, request = BatchAuthors(1, 50), AuthoredRequest(rule, 3, [4, 5, 6])
    batch.add(0, request, 40)
    assert batch.remove(0) is request
    assert request.authors == rule.replay([4, 5, 6], 3).senior.tolist()


def test_a_device_slot_whose_request_left_before_its_first_step_is_the_seniors() -> None:
    rule = Rule(make_schedule("junior", {}), boundary_set({1}), "j")
    authors = DeviceAuthors(2, IDS, torch.device("cpu"), host_memory, record=False)
    authors.remove(authors.add(1, rule, 3, [4, 5], 9))
    authors.write_staged()
    assert authors.of(torch.arange(2)).tolist() == [True, True]
    authors.add(1, rule, 3, [4, 5], 9)
    authors.write_staged()
    assert authors.of(torch.arange(2)).tolist() == [True, False]


def test_a_resumed_request_longer_than_its_limit_is_refused() -> None:
    rule = Rule(make_schedule("token", {}), boundary_set({1}), "t")
    batch = BatchAuthors(2, 50)
    batch.add(0, AuthoredRequest(rule, 3, []), 4)
    batch.add(1, AuthoredRequest(rule, 3, [0] * 5), 4)
    with refused("token-limit-exceeded"):
        batch.next_authors(2)


def test_only_the_walk_of_a_built_in_schedule_is_used() -> None:
    assert has_walk(WordSchedule)
    assert not has_walk(Stubborn)
    assert not has_walk(Countdown)
