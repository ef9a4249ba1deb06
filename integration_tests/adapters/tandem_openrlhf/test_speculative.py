"""OpenRLHF's real trainer on a speculative engine: it trains on what the replay says, and on that
alone.

On the stack that OpenRLHF 0.11.2's own requirements allow, with vLLM 0.29. They pin a transformers
that vLLM 0.32 does not take, and OpenRLHF runs with the newer one all the same: `make
test-speculative-openrlhf` makes such an environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed")

from support.engine import v2_variables
from support.openrlhf_run import ON_CPU, WITHOUT_FLASH_ATTN, OpenRLHFRun
from support.openrlhf_setup import (
    STEPS,
    OpenRLHFSetup,
    assert_masks_are_the_replay,
    batches,
    differences,
)
from support.records import all_records
from support.speculation import needs_drafting

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import response_draws

pytestmark = [needs_drafting, pytest.mark.timeout(1800), pytest.mark.long, pytest.mark.speculative]

ALONE, DRAFTS = 0.25, 3
ROUNDING = 5e-3
"""In nats: engine and actor compute a token's log p in bfloat16, 1.4e-3 apart at most in what was
seen. Senior and junior are 0.08 apart at the median token, and within this at one in fifty."""


@pytest.fixture(scope="module")
def run(openrlhf: OpenRLHFSetup, captured: Path) -> OpenRLHFRun:
    """Two synchronous steps with importance correction; micro-batches of one response."""
    run = openrlhf.bench.run(
        *openrlhf.flags,
        f"--tandem.alone={ALONE}",
        *("--tandem.mode", "speculative", f"--tandem.drafts={DRAFTS}"),
        f"--tandem.record={captured / 'engine'}",
        *("--train.micro_batch_size", "1", "--rollout.max_new_tokens", "16"),
        hooks="capture_openrlhf",
        environment={
            "TANDEM_TEST_CAPTURE": str(captured),
            **v2_variables(ON_CPU, WITHOUT_FLASH_ATTN, Path(__file__).parents[2]),
        },
        timeout=1500,
    )
    assert run.exit_code == 0, run.log[-8000:]
    assert len(run.steps) == STEPS
    return run


def test_engine_and_actor_agree_on_the_seniors_tokens_at_every_step(
    run: OpenRLHFRun, captured: Path
) -> None:
    found = differences(captured)
    assert len(found) > 200
    assert found.abs().max() <= ROUNDING
    assert all(0 < step["tandem/senior_share"] < 1 for step in run.steps)


def test_masks_in_the_loss_are_the_replay_and_the_engines_record(
    run: OpenRLHFRun, captured: Path, openrlhf: OpenRLHFSetup
) -> None:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6, "alone": ALONE})
    rule = TandemRules(config, Vocabulary.from_path(openrlhf.bench.model)).default
    assert_masks_are_the_replay(captured, rule)
    rows = all_records(captured / "engine")
    assert len(rows) == sum(map(len, batches(captured)))
    for row in rows:
        replayed = rule.replay(row["response_ids"], row["tandem_seed"])
        assert row["authorship"] == replayed.tolist()
    alone = [row for row in rows if response_draws([row["tandem_seed"]])[0] < ALONE]
    assert 0 < len(alone) < len(rows)
    assert all(all(row["authorship"]) for row in alone)
    assert sum(row["tandem_draft_stats"]["drafts"] for row in alone) > 0  # of the senior's tokens
    assert not any(row["tandem_draft_stats"]["junior_drafts"] for row in alone)
    assert sum(row["tandem_draft_stats"]["junior_drafts"] for row in rows) > 0


def test_every_step_says_what_became_of_its_drafts(run: OpenRLHFRun) -> None:
    for step in run.steps:
        assert 0 <= step["tandem/draft_acceptance"] <= 1
        assert 1 <= step["tandem/tokens_per_round"] <= DRAFTS + 1
        assert step["tandem/forwards_per_token"] > 1
    assert len({step["tandem/tokens_per_round"] for step in run.steps}) > 1  # not a running total
