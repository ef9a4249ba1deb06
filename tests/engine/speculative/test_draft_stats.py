"""Counters of drafting: those of a plain loop over rounds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from tandem_plugin.engine.speculative.draft_stats import DraftCounters, RoundOutcome
from tandem_plugin.engine.wire import DraftStats

SLOTS, DRAFTS = 4, 3
CPU = torch.device("cpu")


def test_counters_of_slots_and_engine_equal_a_plain_loop() -> None:
    rng = random.Random(0)
    counters = DraftCounters(SLOTS, CPU)
    of_slot = [Counter[str]() for _ in range(SLOTS)]
    total: Counter[str] = Counter()
    for _ in range(200):
        if rng.random() < 0.05:
            slot = rng.randrange(SLOTS)
            counters.begin(slot)
            of_slot[slot].clear()
        rows = rng.sample(range(SLOTS), rng.randint(1, SLOTS))
        authors = [[rng.random() < 0.5 for _ in range(DRAFTS + 1)] for _ in rows]
        num_drafts = [rng.randint(0, DRAFTS) for _ in rows]
        counted = [rng.random() < 0.8 for _ in rows]
        accepted, written = [], []
        for who, drafts in zip(authors, num_drafts, strict=True):
            # Only the senior rejects; behind the last draft, only the senior writes.
            stops = [i for i in range(drafts) if who[i] and rng.random() < 0.4]
            accepted.append(stops[0] if stops else drafts)
            written.append(accepted[-1] + int(bool(stops) or who[drafts] or not drafts))
        for row, slot in enumerate(rows):
            if counted[row] and num_drafts[row]:
                kept = authors[row][: accepted[row]]
                more = Counter(
                    rounds=1,
                    drafts=num_drafts[row],
                    tokens=written[row],
                    senior_drafts=sum(kept) + int(accepted[row] < num_drafts[row]),
                    senior_accepted=sum(kept),
                    junior_drafts=len(kept) - sum(kept),
                )
                of_slot[slot] += more
                total += more
        outcome = RoundOutcome(
            torch.tensor(rows), torch.tensor(authors), torch.tensor(num_drafts),
            torch.tensor(accepted, dtype=torch.int32), torch.tensor(written, dtype=torch.int32),
        )  # fmt: skip
        counters.add(outcome, torch.tensor(counted))
    names = list(DraftStats.__dataclass_fields__)
    for slot in range(SLOTS):
        expected = {name: of_slot[slot][name] for name in names}
        assert counters.of_slot(slot).to_row() == expected
    assert counters.of_engine().to_row() == {name: total[name] for name in names}


def test_rates_are_those_of_the_counters() -> None:
    drafted = DraftStats(
        rounds=10, drafts=40, tokens=42, senior_drafts=20, senior_accepted=19, junior_drafts=18
    )
    assert drafted.acceptance == pytest.approx(0.95)
    assert drafted.tokens_per_round == pytest.approx(4.2)
    assert drafted.forwards_per_token == pytest.approx(50 / 42)
    nothing = DraftStats(0, 0, 0, 0, 0, 0)
    assert nothing.tokens_per_round != nothing.tokens_per_round  # not a number
