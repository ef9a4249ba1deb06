"""``drafts: auto``: what steps take decides how often drafts are made, and nothing else.

The law of responses under tables that change at every step is that of ``test_law.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import traffic, worker
from support.checked_engine import CheckedEngine
from support.engine import async_engine
from support.models import make_model
from support.reference import Reference
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long]

CAP, MOST, LENGTH, REQUESTS = 4, 8, 24, 4
SIZES = (1, 2, 4)
TIMES: dict[str, dict[int, dict[int, float]]] = {
    "a junior that costs nothing": {s: {0: 1.0, 2: 1.0, 4: 1.0, 8: 1.0} for s in SIZES},
    "a junior like the senior": {s: {0: 1.0, 2: 1.8, 4: 2.4, 8: 4.0} for s in SIZES},
    "steps bound by arithmetic": {s: {0: 1.0, 2: 3.0, 4: 5.0, 8: 9.0} for s in SIZES},
    "both, by requests": {
        1: {0: 1.0, 2: 1.0, 4: 1.0, 8: 1.0},
        2: {0: 1.0, 2: 1.0, 4: 5.0, 8: 9.0},
        4: {0: 1.0, 2: 5.0, 4: 5.0, 8: 9.0},
    },
}
TABLES = [{1: 8}, {1: 8}, {1: 0}, {1: 8, 2: 2, 3: 0}]


@pytest.fixture(scope="module", params=[False, True], ids=["synchronous", "asynchronous"])
def setup(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CheckedEngine]:
    folder, record = tmp_path_factory.mktemp("pair"), tmp_path_factory.mktemp("record")
    sizes = {"hidden": 32, "layers": 1, "heads": 1, "kv_heads": 1}
    junior = make_model(folder / "junior", seed=5, tokenizer=tokenizer, **sizes)
    tandem = {
        "cap": CAP, "junior": junior, "mode": "speculative", "drafts": "auto", "record": record,
    }  # fmt: skip
    senior = checkpoints["senior"]
    with async_engine(
        "v2", senior, tandem, async_scheduling=request.param, max_num_seqs=REQUESTS
    ) as running:
        references = {"senior": Reference(senior, junior)}
        yield CheckedEngine(running, record, tokenizer, {"cap": CAP}, 2 * (MOST + 1), references)


def test_the_engine_has_timed_its_steps_and_left_nothing_behind(setup: CheckedEngine) -> None:
    drafts = setup.call(worker.drafts_by_size)
    assert len(drafts) == REQUESTS
    assert set(drafts) <= {0, 2, 4, 8}
    assert [file.stat().st_size for file in setup.record.iterdir()] in ([], [0])
    counters = setup.running.run(setup.running.engine.collective_rpc("tandem_draft_stats"))[0]
    assert set(counters.values()) == {0}


@pytest.mark.parametrize(("name", "table"), zip(TIMES, TABLES, strict=True), ids=list(TIMES))
def test_authors_and_greedy_tokens_do_not_depend_on_what_steps_take(
    setup: CheckedEngine, tokenizer: Any, name: str, table: dict[int, int]
) -> None:
    assert setup.call(worker.choose_drafts_by, TIMES[name]) == table
    setup.call(worker.note_steps)
    before = len(setup.call(worker.noted_steps))
    try:
        schedules: list[dict[str, Any]] = [{}, {"schedule": "token"}, {"schedule": "solo"}]
        jobs = traffic.greedy_jobs(name, 12, tokenizer, LENGTH, schedules, gap=0.02)
        responses = setup.send(jobs)
        sampled = traffic.random_jobs(
            8, tokenizer, 3, longest=LENGTH, arrival=0.02, seeded=True, drafted=True
        )
        others = setup.send(sampled)
        steps = setup.call(worker.noted_steps)[before:]
    finally:
        setup.call(worker.mend_speculation)
    setup.check_greedy(responses)
    setup.check_records(jobs + sampled, responses + others)
    drafts = setup.call(worker.drafts_by_size)
    assert all(asked == drafts[size - 1] for _, size, asked, _ in steps)
    assert {asked for _, _, asked, _ in steps} == set(table.values())
