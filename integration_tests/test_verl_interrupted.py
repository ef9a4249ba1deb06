"""verl's asynchronous trainers, which interrupt responses to sync weights and then go on with them.

Every response is written in one or more parts, by new requests that know how it began. What is
learned from is the replay of the whole, and the engine's own record of every part agrees with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.records import all_records
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = pytest.mark.timeout(1200)
BENCH = VerlBench
STEPS = 3
ROLLOUT = "actor_rollout_ref.rollout"


def mode_flags(mode: str, folder: Path) -> list[str]:
    """The mode's own settings; on a CPU, weights reach engines of other workers through files."""
    if mode == "colocate_async":
        return ["trainer.v1.trainer_mode=colocate_async"]
    return [
        "trainer.v1.trainer_mode=separate_async",
        "trainer.v1.separate_async.parameter_sync_step=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "ray_kwargs.ray_init.num_gpus=2",
        f"{ROLLOUT}.nnodes=1",
        f"{ROLLOUT}.n_gpus_per_node=1",
        f"{ROLLOUT}.checkpoint_engine.backend=file",
        f"{ROLLOUT}.checkpoint_engine.custom_backend_module=support.file_sync",
        f"+{ROLLOUT}.checkpoint_engine.engine_kwargs.file.folder={folder}",
    ]


@pytest.fixture(scope="module", params=["colocate_async", "separate_async"])
def interrupted(
    request: pytest.FixtureRequest,
    bench: VerlBench,
    checkpoints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[VerlRun, list[dict[str, Any]]]:
    """A run, and what its engines recorded."""
    record, weights = tmp_path_factory.mktemp("record"), tmp_path_factory.mktemp("weights")
    run = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.cap=6",
        f"{TANDEM}.validation=team",
        f"{TANDEM}.junior={checkpoints['junior']}",
        f"{TANDEM}.record={record}",
        # Half of a step's requests wait for the other half, and some end early, so that each sync
        # meets responses midway.
        f"{ROLLOUT}.max_num_seqs=4",
        f"{ROLLOUT}.max_model_len=256",
        "data.max_response_length=160",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.test_freq={STEPS}",
        *mode_flags(request.param, weights),
        name=request.param,
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, all_records(record)


def rollouts(run: VerlRun) -> list[dict[str, Any]]:
    return [row for step in run.steps for row in run.rollouts(step["training/global_step"])]


def parts_of(row: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The engine's records of a response, in the order in which they were written."""
    ours = [record for record in records if record["tandem_seed"] == row["tandem_seed"]]
    return sorted(ours, key=lambda record: record.get("tandem_prefix_length", 0))


def test_responses_were_interrupted_and_went_on(interrupted: Any, rule: Rule) -> None:
    """Whether the run still came to train on them, or ended before."""
    run, records = interrupted
    assert len(rollouts(run)) == 8 * STEPS
    resumed = [record for record in records if "tandem_prefix_length" in record]
    assert resumed
    for record in resumed:
        replayed = rule.replay(record["response_ids"], record["tandem_seed"]).tolist()
        assert record["authorship"] == replayed


def test_authorship_of_every_response_is_the_replay_of_the_whole(
    interrupted: Any, rule: Rule
) -> None:
    run, _ = interrupted
    rows = rollouts(run) + run.rollouts(STEPS, "validation")
    assert len({row["tandem_seed"] for row in rows}) == len(rows)
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
        assert row["tandem_segments"] == [[row["tandem_seed"], 0, len(row["response_ids"])]]


def test_engines_recorded_every_part_with_the_authors_that_were_learned_from(
    interrupted: Any,
) -> None:
    run, records = interrupted
    for row in rollouts(run):
        parts = parts_of(row, records)
        starts = [part.get("tandem_prefix_length", 0) for part in parts]
        assert starts[0] == 0
        # An engine may have written more than what had left it when it was interrupted.
        for part, stop in zip(parts, [*starts[1:], len(row["response_ids"])], strict=True):
            assert part["response_ids"][:stop] == row["response_ids"][:stop]
            assert part["authorship"][:stop] == row["authorship"][:stop]
