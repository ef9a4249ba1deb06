"""The speculative engine, greedy: token for token a Hugging Face loop of Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import traffic
from support.checked_engine import CheckedEngine
from support.engine import async_engine
from support.models import make_model
from support.reference import Reference
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long]

DRAFTS = 4
SETTINGS = {"schedule": "word", "cap": 4}
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"p": 0.3, "cap": 9},
    {"schedule": "token"},
    {"schedule": "token", "p": 0.8},
    {"schedule": "step"},
    {"schedule": "junior"},
    {"schedule": "solo"},
]
LONG = pytest.mark.long


@pytest.fixture(
    params=[pytest.param("other", marks=LONG), pytest.param("junior", marks=LONG), "small"]
)
def engine(
    request: pytest.FixtureRequest, checkpoints: dict[str, Path], tokenizer: Any, tmp_path: Path
) -> Iterator[CheckedEngine]:
    """A junior of another depth, width and number of heads; of the senior's; of half its depth."""
    senior, junior = checkpoints["senior"], checkpoints.get(request.param, tmp_path / "small")
    if request.param == "small":
        make_model(junior, seed=4, tokenizer=tokenizer, hidden=32, layers=1, heads=2)
    record = tmp_path / "record"
    tandem = {**SETTINGS, "mode": "speculative", "drafts": DRAFTS, "junior": junior}
    tandem["record"] = record
    with async_engine("v2", senior, tandem, async_scheduling=False) as running:
        references = {"senior": Reference(senior, junior)}
        yield CheckedEngine(running, record, tokenizer, SETTINGS, 2 * DRAFTS + 2, references)


def test_responses_of_every_schedule_equal_a_hugging_face_loop(engine: CheckedEngine) -> None:
    jobs = traffic.greedy_jobs("greedy", 104, engine.tokenizer, 12, SCHEDULES, gap=0.0)
    responses = engine.send(jobs)
    assert [len(response.token_ids) for response in responses] == [12] * len(jobs)
    engine.check_greedy(responses)
    engine.check_records(jobs, responses)
