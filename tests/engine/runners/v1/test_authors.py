"""The state that the V1 engine keeps for a batch, against replay."""

from __future__ import annotations

import numpy as np
import pytest
from algorithm_1 import boundary_set
from automata import automaton_rule
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import make_schedule
from tandem_plugin.engine.record import AuthoredRequest
from tandem_plugin.engine.runners.v1.authors import BatchAuthors
from tandem_plugin.rules import Rule

SIZE, LONGEST = 6, 40
RULES = [
    Rule(make_schedule("word", {"p": 0.5, "cap": 3}), boundary_set({1, 5}), "a"),
    Rule(make_schedule("word", {"p": 0.7, "cap": 1}), boundary_set({2}), "b"),
    Rule(make_schedule("step", {}), boundary_set({1}), "c"),
    automaton_rule(7, 10),
]


class Engine:
    """A batch of requests that come, go, move and pause, as an engine has them."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.batch = BatchAuthors(SIZE, LONGEST + 1)
        self.rows: dict[int, AuthoredRequest] = {}
        self.finished: list[AuthoredRequest] = []
        self.checked = 0

    def token(self) -> int:
        return int(self.random.integers(0, 12))

    def add(self) -> None:
        free = [row for row in range(SIZE) if row not in self.rows]
        if free:
            row = int(self.random.choice(free))
            rule = RULES[self.random.integers(len(RULES))]
            resumed = [self.token() for _ in range(self.random.integers(0, 5))]
            prefix = [self.token() for _ in range(self.random.integers(0, 2) * 7)]
            self.rows[row] = AuthoredRequest(
                rule, int(self.random.integers(2**32)), resumed, prefix=prefix
            )
            self.batch.add(row, self.rows[row], LONGEST)

    def remove(self) -> None:
        if self.rows:
            row = int(self.random.choice(list(self.rows)))
            request = self.rows.pop(row)
            assert self.batch.remove(row) is request
            self.finished.append(request)

    def swap(self) -> None:
        first, second = (int(row) for row in self.random.choice(SIZE, 2, replace=False))
        self.batch.swap(first, second)
        swap = {first: second, second: first}
        self.rows = {swap.get(row, row): request for row, request in self.rows.items()}

    def move(self) -> None:
        free = [row for row in range(SIZE) if row not in self.rows]
        if free and self.rows:
            source, target = int(self.random.choice(list(self.rows))), free[0]
            self.batch.move(source, target)
            self.rows[target] = self.rows.pop(source)

    def step(self) -> None:
        """Most rows sample a token, as in an engine where some are still reading their prompt."""
        authors = self.batch.next_authors(SIZE)
        for row in range(SIZE):
            if row not in self.rows:
                assert authors[row]
                continue
            request = self.rows[row]
            expected = request.rule.walk_batch(
                [[*request.prefix, *request.output]], [request.seed]
            )[0]
            assert authors[row] == expected.author
            self.checked += 1
        came = []
        for row, request in self.rows.items():
            if len(request.output) < LONGEST and self.random.random() < 0.9:
                came.append((row, request, len(request.output), bool(authors[row])))
                request.output.append(self.token())
        by_row = lambda written: written[0]  # noqa: E731
        assert sorted(map(tuple, self.batch.written()), key=by_row) == sorted(came, key=by_row)


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_authors_and_records_of_a_changing_batch_equal_replay(seed: int) -> None:
    engine = Engine(seed)
    for _ in range(3):
        engine.add()
    for _ in range(60):
        change = engine.random.random()
        if change < 0.4:
            choices = (engine.add, engine.remove, engine.swap, engine.move)
            choices[engine.random.integers(len(choices))]()
        engine.step()
    while engine.rows:
        engine.remove()
    assert engine.checked > 0
    for request in engine.finished:
        replayed = request.rule.replay([*request.prefix, *request.output], request.seed)
        assert request.authors == replayed.senior.tolist()[len(request.prefix) :]


@pytest.mark.parametrize(("seed", "before", "after"), [(4, True, False), (5, False, True)])
def test_tokens_that_were_taken_back_are_forgotten(seed: int, before: bool, after: bool) -> None:
    batch, request = BatchAuthors(1, 50), AuthoredRequest(RULES[0], seed, [0, 1, 2, 3, 0, 0])
    batch.add(0, request, 49)
    assert batch.next_authors(1).tolist() == [before]
    del request.output[2:]
    assert batch.next_authors(1).tolist() == [after]
    assert RULES[0].walk_batch([[0, 1]], [seed])[0].author is after


def test_placeholder_of_a_token_that_is_not_known_yet_is_refused() -> None:
    batch, request = BatchAuthors(1, 50), AuthoredRequest(RULES[0], 3, [])
    batch.add(0, request, 49)
    batch.next_authors(1)
    request.output.append(-1)
    with refused("last-token-unreported"):
        batch.next_authors(1)


def test_tokens_past_the_requests_limit_are_refused() -> None:
    batch, request = BatchAuthors(1, 50), AuthoredRequest(RULES[0], 3, [])
    batch.add(0, request, 2)
    for _ in range(2):
        batch.next_authors(1)
        request.output.append(0)
    batch.next_authors(1)
    request.output.append(0)
    with refused("token-limit-exceeded"):
        batch.next_authors(1)


def test_row_outside_the_batch_is_refused() -> None:
    batch = BatchAuthors(4, 50)
    batch.add(3, AuthoredRequest(RULES[0], 3, []), 49)
    with refused("request-row-missing", row=3, rows=2):
        batch.next_authors(2)


def test_request_that_ends_with_undecided_tokens_is_refused() -> None:
    batch, request = BatchAuthors(1, 50), AuthoredRequest(RULES[0], 3, [])
    batch.add(0, request, 49)
    batch.next_authors(1)
    request.output.extend([0, 1])
    with refused("final-author-unknown", missing=2):
        batch.remove(0)
