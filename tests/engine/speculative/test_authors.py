"""Authors along drafted chains: those of Algorithm 1, however far each chain holds."""

from __future__ import annotations

import random
from itertools import takewhile

import numpy as np
import pytest
import torch
from algorithm_1 import algorithm_1
from device_slots import CPU, PIECES, SLOTS, VOCABULARY, Running, rules_of_all_kinds
from host_memory import host_memory
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin import TandemConfig, TandemRules
from tandem_plugin._draws import draws
from tandem_plugin.engine.speculative.authors import ChainAuthors
from tandem_plugin.rules import Rule

POSITIONS, DRAFTS = 48, 3


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return rules_of_all_kinds()


def chain_authors(*, record: bool = True) -> ChainAuthors:
    return ChainAuthors(SLOTS, len(PIECES) + 7, CPU, host_memory, record=record)


def expected_authors(request: Running, tokens: list[int]) -> list[bool]:
    return [bool(author) for author in request.rule.replay(tokens, request.seed).senior]


class Batch:
    """An engine's slots, whose requests enter, write rounds of any length, and leave, at random."""

    longest = POSITIONS - DRAFTS - 2

    def __init__(self, rules: list[Rule], seed: int) -> None:
        self.rng, self.rules, self.seeds = random.Random(seed), rules, iter(range(10**6))
        self.authors = chain_authors()
        self.running: dict[int, Running] = {}
        self.preempted: list[Running] = []
        self.last_tokens = torch.zeros(SLOTS, dtype=torch.int64)
        self.finished = self.rounds = 0

    def enter(self) -> None:
        """Fill some of the free slots with new requests, and with preempted ones."""
        for slot in set(range(SLOTS)) - self.running.keys():
            if self.rng.random() < 0.3:
                continue
            if self.preempted and self.rng.random() < 0.7:
                again = self.preempted.pop()
                rule, seed, tokens = again.rule, again.seed, again.tokens
            else:
                rule, seed, tokens = self.rng.choice(self.rules), next(self.seeds), []
            positions = self.longest + DRAFTS + 1
            slot_request = self.authors.add(slot, rule, seed, tokens, positions)
            self.running[slot] = Running(rule, seed, slot_request, tokens)
        self.authors.write_staged()

    def draft(self) -> list[list[int]]:
        """Random drafts of every slot; -1 and what follows it are none."""
        return [[self.rng.randrange(-1, len(PIECES)) for _ in range(DRAFTS)] for _ in range(SLOTS)]

    def write(self, rows: list[int], drafts: list[list[int]]) -> None:
        """A round of some slots: as many of their drafts as they keep, and one more token."""
        counts = [self._write(slot, drafts[slot]) for slot in rows]
        self.authors.advance(torch.tensor(rows), torch.tensor(counts), self.last_tokens)

    def _write(self, slot: int, drafts: list[int]) -> int:
        request = self.running.get(slot)
        if request is None:
            return 0
        room = self.longest - len(request.tokens)
        count = self.rng.randint(0, min(len(drafts) + 1, room))
        if count:
            self.last_tokens[slot] = self.rng.randrange(len(PIECES))
            request.tokens.extend([*drafts[: count - 1], int(self.last_tokens[slot])])
        self.rounds += 1
        return count

    def leave(self) -> None:
        """Finish and preempt requests, whose record is that of replay."""
        for slot, request in list(self.running.items()):
            is_done = len(request.tokens) == self.longest
            if not is_done and self.rng.random() >= 0.05:
                continue
            recorded = self.authors.recorded(request.slot_request, len(request.tokens))
            assert recorded == expected_authors(request, request.tokens)
            self.authors.remove(request.slot_request)
            del self.running[slot]
            self.finished += 1
            if not is_done and self.rng.random() < 0.5:
                self.preempted.append(request)

    def check_chain(
        self, rows: list[int], drafts: list[list[int]], chain: list[list[bool]]
    ) -> None:
        """The authors of the drafts and of the token after the last; the senior's without one."""
        for slot in rows:
            if slot not in self.running:
                assert chain[slot][0] is True
                continue
            request, length = self.running[slot], len(drafts[slot]) + 1
            whole = expected_authors(request, [*request.tokens, *drafts[slot], 0])
            assert chain[slot][:length] == whole[len(request.tokens) :]


@pytest.mark.parametrize("seed", range(8))
def test_every_round_gives_the_authors_that_replay_gives(rules: list[Rule], seed: int) -> None:
    """With drafts and without, for requests of all schedules."""
    batch = Batch(rules, seed)
    for _ in range(120):
        batch.enter()
        rows = batch.rng.sample(range(SLOTS), batch.rng.randint(1, SLOTS))
        if batch.rng.random() < 0.8:
            drafts = batch.draft()
            chain = batch.authors.chain_authors(torch.tensor(drafts))
            slots, steps = torch.cartesian_prod(torch.arange(SLOTS), torch.arange(DRAFTS + 1)).T
            assert torch.equal(batch.authors.at(slots, steps), chain.flatten())
            valid = [list(takewhile(lambda token: token >= 0, of_slot)) for of_slot in drafts]
        else:
            slots = torch.arange(SLOTS)
            chain = batch.authors.of(slots)[:, None]
            assert torch.equal(batch.authors.at(slots, torch.zeros_like(slots)), chain[:, 0])
            valid = [[] for _ in range(SLOTS)]
        batch.check_chain(rows, valid, chain.tolist())
        batch.write(rows, valid)
        batch.leave()
    assert batch.finished > 15
    assert batch.rounds > 200


@given(
    st.integers(0, 2**63 - 1),
    st.floats(0, 1),
    st.integers(1, 6),
    st.lists(
        st.tuples(
            st.lists(st.integers(0, len(PIECES) - 1), min_size=DRAFTS, max_size=DRAFTS),
            st.integers(0, DRAFTS + 1),
            st.integers(0, len(PIECES) - 1),
        ),
        max_size=10,
    ),
)
def test_rounds_of_any_length_write_algorithm_1(
    seed: int, p: float, cap: int, rounds: list[tuple[list[int], int, int]]
) -> None:
    """Against the paper's loop; a round is its drafts, how many tokens it wrote, and the last."""
    settings = {"schedule": "word", "p": p, "cap": cap}
    rule = TandemRules(TandemConfig.from_mapping(settings), VOCABULARY).default
    boundaries = {i for i in range(len(PIECES)) if rule.boundaries.contains(np.array([i]))[0]}
    authors, u = chain_authors(record=False), draws(seed, POSITIONS + 1).tolist()
    authors.add(2, rule, seed, [], POSITIONS)
    authors.write_staged()
    written: list[int] = []
    for drafts, count, last in rounds:
        table = torch.zeros(SLOTS, DRAFTS, dtype=torch.int64)
        table[2] = torch.tensor(drafts)
        said = authors.chain_authors(table)[2].tolist()
        paper = algorithm_1([*written, *drafts, 0], boundaries, cap, p, u)
        assert [int(author) for author in said] == paper[len(written) :]
        fresh = [*drafts[: count - 1], last] if count else []
        authors.advance(torch.tensor([2]), torch.tensor([count]), torch.tensor([0, 0, last, 0, 0]))
        written += fresh
    assert authors.of(torch.tensor([2])).tolist() == [
        bool(algorithm_1([*written, 0], boundaries, cap, p, u)[-1])
    ]
