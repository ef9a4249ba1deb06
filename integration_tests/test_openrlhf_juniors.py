"""OpenRLHF's own trainer with two engines and a pool of two juniors: who wrote with the senior."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

from support.greedy import assert_named_junior_wrote
from support.models import make_model
from support.openrlhf_run import OpenRLHFRun
from support.openrlhf_setup import (
    PROMPTS,
    SAMPLES,
    SEED,
    STEPS,
    OpenRLHFSetup,
    assert_masks_are_the_replay,
    batches,
)
from support.records import all_records

pytestmark = pytest.mark.timeout(1800)
ROUNDING = 0.05
"""In logits: how far below the largest a greedy token may be; the engine computes in bfloat16."""


@dataclass(frozen=True)
class Trained:
    """A run in which everybody writes greedily, with what was captured, recorded and dumped."""

    run: OpenRLHFRun
    folder: Path

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The engines' records ("engine") or the trainer's dumps ("rollouts")."""
        return all_records(self.folder / kind)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The responses that were admitted, of all steps."""
        return list(itertools.chain.from_iterable(batches(self.folder)))


@pytest.fixture(scope="module")
def pool(openrlhf: OpenRLHFSetup, tokenizer: Any) -> list[str]:
    """Juniors of other shapes, their choices far enough apart for bfloat16."""
    folder = openrlhf.bench.folder / "juniors"
    make_model(folder / "small", seed=11, tokenizer=tokenizer)
    make_model(
        folder / "other", seed=12, tokenizer=tokenizer, hidden=96, layers=3, heads=6, kv_heads=3
    )
    return [str(folder / "small"), str(folder / "other")]


def tandem(pool: list[str]) -> list[str]:
    settings = ("--tandem.schedule", "word", "--tandem.cap", "6", f"--tandem.seed={SEED}")
    return [*settings, f"--tandem.junior={json.dumps(pool)}"]


@pytest.fixture(scope="module")
def trained(
    openrlhf: OpenRLHFSetup, pool: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    folder = tmp_path_factory.mktemp("captured")
    run = openrlhf.bench.run(
        *tandem(pool),
        *("--tandem.measure_every", "1", f"--tandem.record={folder / 'engine'}"),
        *("--train.micro_batch_size", "1"),
        f"--tandem.rollouts={folder / 'rollouts'}",
        *("--vllm.num_engines", "2", "--rollout.top_p", "1e-6"),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(folder)},
        name="juniors",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    return Trained(run, folder)


def test_every_response_its_dump_and_its_record_say_the_same_junior(
    trained: Trained, openrlhf: OpenRLHFSetup, pool: list[str]
) -> None:
    recorded = {line["tandem_seed"]: line["tandem_junior"] for line in trained.lines("engine")}
    dumped = {line["tandem_seed"]: line["tandem_junior"] for line in trained.lines("rollouts")}
    assert len(dumped) == len(trained.rows) == STEPS * PROMPTS * SAMPLES
    for row in trained.rows:
        seed = row["segments"][0][0]
        assert row["junior"] == recorded[seed] == dumped[seed]
    assert set(dumped.values()) == set(pool)
    assert_masks_are_the_replay(trained.folder, openrlhf.rule)


def test_responses_to_a_prompt_have_one_junior(trained: Trained) -> None:
    for group in zip(*[iter(trained.rows)] * SAMPLES, strict=True):
        assert len({row["junior"] for row in group}) == 1


def test_juniors_tokens_are_the_greedy_choice_of_the_junior_that_is_named(
    trained: Trained, openrlhf: OpenRLHFSetup, pool: list[str]
) -> None:
    rows = []
    for row in trained.rows:
        ((seed, start, stop),) = row["segments"]
        response = row["tokens"][start:stop]
        authors = openrlhf.rule.replay(response, seed).tolist()
        rows.append((row["junior"], row["tokens"][:start], response, authors))
    assert_named_junior_wrote(rows, pool, ROUNDING, torch.bfloat16)
