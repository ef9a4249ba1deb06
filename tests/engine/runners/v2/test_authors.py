"""Authors on the device: who is in tandem, and where draws lie. test_chain_authors has the rest."""

from __future__ import annotations

import pytest
import torch
from device_slots import CPU, PIECES, SLOTS, rules_of_all_kinds
from host_memory import host_memory
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin.engine.runners.v2.authors import DeviceAuthors, DrawsTable
from tandem_plugin.plugins.selection import make_schedule
from tandem_plugin.rules import Rule


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return rules_of_all_kinds()


def device_authors() -> DeviceAuthors:
    return DeviceAuthors(SLOTS, len(PIECES) + 7, CPU, host_memory, record=True)


def test_nothing_is_in_tandem_once_every_request_left(rules: list[Rule]) -> None:
    authors = device_authors()
    assert not authors.any_in_tandem
    slot_request = authors.add(2, make_junior(rules), 1, [], 8)
    authors.write_staged()
    assert authors.any_in_tandem
    assert authors.of(torch.arange(SLOTS)).tolist() == [True, True, False, True, True]
    authors.remove(slot_request)
    authors.write_staged()
    assert not authors.any_in_tandem
    assert authors.of(torch.arange(SLOTS)).all()


def test_a_slot_without_a_new_token_keeps_its_author_whatever_it_was_reported(
    rules: list[Rule],
) -> None:
    authors, slots = device_authors(), torch.tensor([0, 1])
    for slot in (0, 1):
        authors.add(slot, make_junior(rules), slot, [], 8)
    authors.write_staged()
    last_tokens = torch.full((SLOTS,), 10**9)  # what is left of earlier requests
    last_tokens[0] = 3
    authors.advance(slots, torch.tensor([1, 0]), last_tokens)
    assert authors.lengths(slots).tolist() == [1, 0]
    assert authors.of(slots).tolist() == [False, False]


def test_tokens_beyond_a_responses_end_take_no_draws_of_another_request(rules: list[Rule]) -> None:
    """Asynchronous scheduling runs a request once more, before it sees that the last one ended."""
    authors, slot = device_authors(), torch.tensor([0])
    for neighbour in (0, 1):
        authors.add(neighbour, rules[0], neighbour, [], 2)
    authors.write_staged()
    lengths = []
    for _ in range(5):
        authors.advance(slot, torch.tensor([1]), torch.zeros(SLOTS, dtype=torch.int64))
        lengths += authors.lengths(slot).tolist()
    assert lengths == [1, 2, 2, 2, 2]


def make_junior(rules: list[Rule]) -> Rule:
    return Rule(make_schedule("junior", {}), rules[0].boundaries, "f" * 16)


def test_a_request_without_room_for_another_token_is_refused(rules: list[Rule]) -> None:
    with refused("token-buffer-full"):
        device_authors().add(0, rules[0], 1, list(range(9)), 8)


@given(st.lists(st.tuples(st.integers(1, 300_000), st.booleans()), max_size=60))
def test_requests_have_draws_of_their_own_and_others_take_their_places(
    entering: list[tuple[int, bool]],
) -> None:
    """Each with its length; half of them leave when the next one comes."""
    table, held, most = DrawsTable(host_memory, first=8), [], 0
    for value, (length, leaves) in enumerate(entering):
        first = table.take(length)
        table.host[first : first + length] = value
        held.append((first, length, value))
        most = max(most, sum(length for _, length, _ in held))
        assert first >= 8
        for start, size, written in held:
            assert (table.host[start : start + size] == written).all()
            assert table.host[start] == table.view[start]
        if leaves:
            start, size, _ = held.pop(0)
            table.give_back(start, size)
    assert len(held) <= len(entering)


def test_memory_of_draws_follows_the_lengths_that_are_asked_for() -> None:
    """A batch of 1,024 of an engine that reads 262,144 tokens, whose responses have 4,096."""
    table = DrawsTable(host_memory, first=1024)
    for _ in range(3):
        places = [table.take(4097) for _ in range(1024)]
        for first in places:
            table.give_back(first, 4097)
    assert len(table.host) == 2**23, (
        "64 MiB, and as much outgrown; all that could be read takes 2 GiB"
    )
