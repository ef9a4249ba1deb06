"""Authors along drafted chains: those of Algorithm 1, however far each chain holds."""

from __future__ import annotations

import random

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


@pytest.mark.parametrize("seed", range(8))
def test_every_round_gives_the_authors_that_replay_gives(rules: list[Rule], seed: int) -> None:
    """Requests of all schedules enter, draft, hold to any length, are preempted, and leave."""
    rng = random.Random(seed)
    authors = chain_authors()
    running: dict[int, Running] = {}
    preempted: list[Running] = []
    last_tokens = torch.zeros(SLOTS, dtype=torch.int64)
    longest = POSITIONS - DRAFTS - 2
    finished = rounds = 0
    for step in range(120):
        for slot in range(SLOTS):
            if slot in running or rng.random() < 0.3:
                continue
            again = preempted.pop() if preempted and rng.random() < 0.7 else None
            rule = again.rule if again else rng.choice(rules)
            number = again.seed if again else 1_000 * seed + step * SLOTS + slot
            tokens = again.tokens if again else []
            slot_request = authors.add(slot, rule, number, tokens, longest + DRAFTS + 1)
            running[slot] = Running(rule, number, slot_request, tokens)
        authors.write_staged()
        rows = rng.sample(range(SLOTS), rng.randint(1, SLOTS))
        drafted = rng.random() < 0.8
        drafts = [[rng.randrange(-1, len(PIECES)) for _ in range(DRAFTS)] for _ in range(SLOTS)]
        if drafted:
            along = authors.along(torch.tensor(drafts))
            slots, steps = torch.cartesian_prod(torch.arange(SLOTS), torch.arange(DRAFTS + 1)).T
            assert torch.equal(authors.at(slots, steps), along.flatten())
            chain = along.tolist()
        else:
            said = authors.of(torch.tensor(rows)).tolist()
            assert authors.at(torch.tensor(rows), torch.zeros(len(rows)).long()).tolist() == said
            chain = [[True]] * SLOTS
            for slot, author in zip(rows, said, strict=True):
                chain[slot] = [author]
        counts = []
        for slot in rows:
            if slot not in running:
                assert chain[slot][0] is True
                counts.append(0)
                continue
            request = running[slot]
            valid = next((i for i, d in enumerate(drafts[slot]) if d < 0), DRAFTS)
            most = min(valid + 1 if drafted else 1, longest - len(request.tokens))
            count = rng.randint(0, most)
            counts.append(count)
            fresh = drafts[slot][: max(count - 1, 0)]
            if count:
                fresh = [*fresh, rng.randrange(len(PIECES))]
                last_tokens[slot] = fresh[-1]
            held = drafts[slot][:valid] if drafted else []
            whole = expected_authors(request, [*request.tokens, *held, 0])
            assert chain[slot][: len(held) + 1] == whole[len(request.tokens) :]
            request.tokens.extend(fresh)
            rounds += 1
        authors.advance(torch.tensor(rows), torch.tensor(counts), last_tokens)
        for slot, request in list(running.items()):
            if len(request.tokens) == longest or rng.random() < 0.05:
                recorded = authors.recorded(request.slot_request, len(request.tokens))
                assert recorded == expected_authors(request, request.tokens)
                authors.remove(request.slot_request)
                del running[slot]
                finished += 1
                if len(request.tokens) < longest and rng.random() < 0.5:
                    preempted.append(request)
    assert finished > 15
    assert rounds > 200


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
        said = authors.along(table)[2].tolist()
        paper = algorithm_1([*written, *drafts, 0], boundaries, cap, p, u)
        assert [int(author) for author in said] == paper[len(written) :]
        fresh = [*drafts[: count - 1], last] if count else []
        authors.advance(torch.tensor([2]), torch.tensor([count]), torch.tensor([0, 0, last, 0, 0]))
        written += fresh
    assert authors.of(torch.tensor([2])).tolist() == [
        bool(algorithm_1([*written, 0], boundaries, cap, p, u)[-1])
    ]
