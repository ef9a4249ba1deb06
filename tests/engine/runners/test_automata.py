"""Schedules of token classes: both runners, drafted chains and replay, against a plain loop."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from automata import authors_by_loop, automaton_rule, calling_rule
from host_memory import host_memory
from torch.utils._python_dispatch import TorchDispatchMode

from tandem_plugin import BoundarySet, make_schedule
from tandem_plugin._draws import draws
from tandem_plugin.engine.record import AuthoredRequest
from tandem_plugin.engine.runners.v1.authors import BatchAuthors
from tandem_plugin.engine.runners.v2.authors import DeviceAuthors
from tandem_plugin.engine.speculative.authors import ChainAuthors
from tandem_plugin.rules import Rule

IDS, DRAFTS, CPU = 40, 4, torch.device("cpu")


def written_by_both_runners(
    rules: list[Rule], tokens: np.ndarray
) -> tuple[list[list[bool]], list[list[bool]]]:
    """The records of both runners' authors; row i of the tokens has seed i, and rule i mod n."""
    rows, length = tokens.shape
    host = BatchAuthors(rows, length + 2)
    device = DeviceAuthors(rows, IDS + 9, CPU, host_memory, record=True)
    requests = [AuthoredRequest(rules[row % len(rules)], row, []) for row in range(rows)]
    slot_requests = []
    for row, request in enumerate(requests):
        host.add(row, request, length)
        slot_requests.append(device.add(row, request.rule, row, [], length))
    device.write_staged()
    every, one_each = torch.arange(rows), torch.ones(rows, dtype=torch.int32)
    for t, column in enumerate(tokens.T):
        authors = host.next_authors(rows)
        assert (device.of(every).numpy() == authors).all(), t
        for request, token in zip(requests, column.tolist(), strict=True):
            request.output.append(token)
        device.advance(every, one_each, torch.from_numpy(column.copy()))
    host.next_authors(rows)
    on_device = [device.recorded(slot_request, length) for slot_request in slot_requests]
    for row in range(rows):
        host.remove(row)
    return [request.authors for request in requests], on_device


def drafted(rules: list[Rule], tokens: np.ndarray, random: np.random.Generator) -> list[list[bool]]:
    """The records of rounds whose drafts hold for 0 to all of their tokens."""
    rows, length = tokens.shape
    authors = ChainAuthors(rows, IDS + 9, CPU, host_memory, record=True)
    slot_requests = [
        authors.add(row, rules[row % len(rules)], row, [], length + DRAFTS + 1)
        for row in range(rows)
    ]
    authors.write_staged()
    padded = np.pad(tokens, ((0, 0), (0, DRAFTS + 1)))
    done, every = np.zeros(rows, dtype=np.int64), torch.arange(rows)
    while (done < length).any():
        count = np.minimum(random.integers(1, DRAFTS + 2, rows), length - done)
        next_tokens = padded[np.arange(rows)[:, None], done[:, None] + np.arange(DRAFTS)]
        wrong = random.integers(0, IDS, (rows, DRAFTS))
        holds = np.arange(DRAFTS) < count[:, None] - 1
        authors.chain_authors(torch.from_numpy(np.where(holds, next_tokens, wrong)))
        done += count
        last = torch.from_numpy(padded[np.arange(rows), np.maximum(done - 1, 0)])
        authors.advance(every, torch.from_numpy(count), last)
    return [authors.recorded(slot_request, length) for slot_request in slot_requests]


def differences(rows: int, length: int, automata: int, seed: int) -> tuple[int, int]:
    """Tokens compared, and those whose author differs anywhere from the plain loop's."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 2**32, automata).tolist()
    rules = [automaton_rule(number, IDS, p=0.3) for number in numbers]
    tokens = random.integers(0, IDS + 5, (rows, length))
    host, device = written_by_both_runners(rules, tokens)
    chained = drafted(rules, tokens, random)
    wrong = 0
    for row in range(rows):
        rule = rules[row % automata]
        table = rule.boundaries.table.tolist()
        expected = authors_by_loop(
            numbers[row % automata],
            0.3,
            table,
            tokens[row].tolist(),
            draws(row, length + 1).tolist(),
        )[:-1]
        assert len(set(expected)) == 2 or length < 100
        replayed = rule.replay(tokens[row].tolist(), row).senior.tolist()
        for authors in (replayed, host[row], device[row], chained[row]):
            wrong += sum(a != b for a, b in zip(authors, expected, strict=True))
    return rows * length, wrong


@pytest.mark.parametrize("seed", range(3))
def test_random_automata_have_the_authors_of_a_plain_loop(seed: int) -> None:
    assert differences(rows=60, length=500, automata=7, seed=seed) == (30_000, 0)


def test_a_run_of_another_schedule_does_not_reach_a_table() -> None:
    """In a batch of several rules every schedule steps over every slot."""
    automaton, size = automaton_rule(3, IDS), 4
    every = Rule(
        make_schedule("handover", {}), BoundarySet("every", np.ones(IDS, dtype=bool)), "every"
    )
    device = DeviceAuthors(size, IDS, CPU, host_memory, record=True)
    slots = [device.add(slot, (automaton, every)[slot % 2], slot, [], 300) for slot in range(size)]
    device.write_staged()
    tokens = np.random.default_rng(1).integers(0, IDS, (size, 300))
    for column in tokens.T:
        device.advance(
            torch.arange(size), torch.ones(size, dtype=torch.int32), torch.from_numpy(column.copy())
        )
    for slot, slot_request in enumerate(slots):
        rule = (automaton, every)[slot % 2]
        expected = rule.replay(tokens[slot].tolist(), slot).senior.tolist()
        assert device.recorded(slot_request, 300) == expected


def test_calls_have_the_authors_of_a_plain_loop() -> None:
    """Token id mod 4 is ``<``, ``7``, ``>`` or other text; five tokens follow a call, at most."""
    rows, length = 24, 400
    tokens = np.random.default_rng(4).integers(0, IDS, (rows, length))
    tokens[:, ::5] = 0
    tokens[:, 1::5] = 1
    tokens[::2, 2::5] = 2
    expected = []
    for row in tokens.tolist():
        authors, left, calls, text = [], 0, 0, ""
        for token in row:
            authors.append(left == 0)
            text += "<7>a"[token % 4]
            if left:
                left, text = left - 1, ""
            elif re.search("<7{1,3}>$", text) and calls < 30:
                left, calls = 5, calls + 1
        expected.append(authors)
    rules = [calling_rule(IDS), automaton_rule(5, IDS)]
    for mixed in (rules[:1], rules):
        host, device = written_by_both_runners(mixed, tokens)
        chained = drafted(mixed, tokens, np.random.default_rng(5))
        for row in range(0, rows, len(mixed)):
            assert host[row] == device[row] == chained[row] == expected[row]
            replayed = mixed[0].replay(tokens[row].tolist(), row).senior.tolist()
            assert replayed == expected[row]
    assert 0.2 < np.mean(expected) < 0.8


def test_a_slot_that_another_schedule_left_does_not_reach_a_table() -> None:
    """Its run is larger than any state, and is written anew with the next requests only."""
    automaton, size = automaton_rule(3, IDS), 4
    every = Rule(
        make_schedule("handover", {}), BoundarySet("every", np.ones(IDS, dtype=bool)), "every"
    )
    device = DeviceAuthors(size, IDS, CPU, host_memory, record=True)
    slots = [device.add(slot, (automaton, every)[slot % 2], slot, [], 300) for slot in range(size)]
    device.write_staged()
    tokens = torch.from_numpy(np.random.default_rng(1).integers(0, IDS, (300, size)))
    all_slots, ones = torch.arange(size), torch.ones(size, dtype=torch.int32)
    for t, column in enumerate(tokens):
        device.advance(all_slots, ones, column)
        if t == 200:
            for slot in (1, 3):
                device.remove(slots[slot])
        if t == 250:
            device.write_staged()
    for slot in (0, 2):
        expected = automaton.replay(tokens[:, slot].tolist(), slot).senior.tolist()
        assert device.recorded(slots[slot], 300) == expected


class Operations(TorchDispatchMode):
    """The names of the operations that tensors go through."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


WAITS = {"_local_scalar_dense", "nonzero", "_to_copy", "unique2", "masked_select", "item"}
"""Operations for which the host waits for a device, or that copy to or from it."""


@pytest.mark.parametrize(
    "rules", [[automaton_rule(0, IDS), automaton_rule(1, IDS)], [calling_rule(IDS)]]
)
def test_no_step_of_token_classes_waits_for_the_device(rules: list[Rule]) -> None:
    with Operations() as known:
        torch.ones(1).item()
    assert known.names & WAITS
    authors = ChainAuthors(4, IDS, CPU, host_memory, record=True)
    for slot in range(4):
        authors.add(slot, rules[slot % len(rules)], slot, [], 50)
    authors.write_staged()
    every, tokens = torch.arange(4), torch.tensor([3, 0, 7, 7])
    authors.advance(every, torch.ones(4, dtype=torch.int32), tokens)  # copies the tables
    with Operations() as recorded:
        authors.of(every)
        authors.advance(every, torch.ones(4, dtype=torch.int32), tokens)
        authors.chain_authors(tokens[:, None].expand(4, DRAFTS))
        authors.advance(every, torch.full((4,), 2), tokens)
    assert "index_select" in recorded.names
    assert not recorded.names & WAITS
