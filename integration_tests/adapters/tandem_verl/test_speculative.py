"""verl's real trainers on a speculative engine: what the actor computes is what the engine sampled.

On the stack that verl 0.9.1's own requirements allow, with vLLM 0.29. They pin a transformers that
vLLM 0.32 does not take, and verl runs with the newer one all the same:
`make test-vllm M="trainer and speculative"` makes such an environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.engine import v2_variables
from support.records import all_records
from support.speculation import needs_drafting
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin._draws import response_draws

pytestmark = [needs_drafting, pytest.mark.timeout(1800), pytest.mark.long, pytest.mark.speculative]

CAP, ALONE, DRAFTS, LENGTH = 4, 0.25, 3, 12


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Path], record: Path
) -> VerlRun:
    bench = VerlBench.make(tmp_path_factory.mktemp("verl"), checkpoints["senior"])
    done = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.cap={CAP}",
        f"{TANDEM}.alone={ALONE}",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.mode=speculative",
        f"{TANDEM}.drafts={DRAFTS}",
        f"{TANDEM}.record={record}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        f"data.max_response_length={LENGTH}",
        "trainer.total_training_steps=3",
        environment=v2_variables(),
        timeout=1500,
    )
    assert done.exit_code == 0, done.log[-8000:]
    return done


def test_rollout_and_actor_agree_on_every_trained_token_at_every_step(run: VerlRun) -> None:
    assert [step["training/global_step"] for step in run.steps] == [1, 2, 3]
    for step in run.steps:
        assert step["training/rollout_probs_diff_max"] <= 1e-6
        assert 0 < step["tandem/senior_share"] < 1
        assert step["tandem/senior_share_together"] <= step["tandem/senior_share"]
        assert step["actor/grad_norm"] > 0


def test_every_step_says_what_became_of_its_drafts(run: VerlRun, record: Path) -> None:
    for step in run.steps:
        assert 0 <= step["tandem/draft_acceptance"] <= 1
        assert 1 <= step["tandem/tokens_per_round"] <= DRAFTS + 1
        assert step["tandem/forwards_per_token"] > 1
    assert len({step["tandem/tokens_per_round"] for step in run.steps}) > 1  # not a running total


def test_the_engine_drafted_and_recorded_the_authors_of_the_replay(
    run: VerlRun, record: Path, checkpoints: dict[str, Path]
) -> None:
    rules = TandemRules(
        TandemConfig.from_mapping({"cap": CAP, "alone": ALONE}),
        Vocabulary.from_path(checkpoints["senior"]),
    )
    rows = all_records(record)
    assert len(rows) > 16
    for row in rows:
        replayed = rules.default.replay(row["response_ids"], row["tandem_seed"])
        assert row["authorship"] == replayed.tolist()
    alone = [row for row in rows if response_draws([row["tandem_seed"]])[0] < ALONE]
    assert 0 < len(alone) < len(rows)
    assert all(all(row["authorship"]) for row in alone)
    assert sum(row["tandem_draft_stats"]["drafts"] for row in alone) > 0  # of the senior's tokens
    assert not any(row["tandem_draft_stats"]["junior_drafts"] for row in alone)
    drafted = [row["tandem_draft_stats"] for row in rows]
    assert sum(one["drafts"] for one in drafted) > 0
    assert sum(one["junior_drafts"] for one in drafted) > 0
