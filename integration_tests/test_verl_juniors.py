"""verl's own trainers with two engines and a pool of two juniors: who wrote with the senior.

The asynchronous ones interrupt responses to sync weights and then go on with them: every response
is written in one or more parts, by new requests that know how it began. What is learned from is the
replay of the whole, and the engines' own record of every part agrees with it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.greedy import assert_named_junior_wrote
from support.records import all_records
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = pytest.mark.timeout(1800)
BENCH, STEPS = VerlBench, 2
ROLLOUT = "actor_rollout_ref.rollout"
TOLERANCE = 1e-3
"""In logits: how far below the largest a greedy token may be, by rounding alone."""


@pytest.fixture(scope="module")
def pool(checkpoints: dict[str, Path]) -> list[str]:
    return [str(checkpoints["junior"]), str(checkpoints["other"])]


def mode_flags(mode: str, folder: Path) -> list[str]:
    """Two engines: of two workers that train too, or on GPUs of their own, synced through files."""
    if mode == "sync":
        return ["trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2"]
    midway = f"{ROLLOUT}.max_num_seqs=2"  # so that each sync meets responses midway
    if mode == "colocate_async":
        return ["trainer.v1.trainer_mode=colocate_async", midway, *mode_flags("sync", folder)]
    return [
        "trainer.v1.trainer_mode=separate_async",
        "trainer.v1.separate_async.parameter_sync_step=1",
        "ray_kwargs.ray_init.num_gpus=3",
        f"{ROLLOUT}.nnodes=1",
        f"{ROLLOUT}.n_gpus_per_node=2",
        midway,
        f"{ROLLOUT}.checkpoint_engine.backend=file",
        f"{ROLLOUT}.checkpoint_engine.custom_backend_module=support.file_sync",
        f"+{ROLLOUT}.checkpoint_engine.engine_kwargs.file.folder={folder}",
    ]


@pytest.fixture(scope="module", params=["sync", "colocate_async", "separate_async"])
def trained(
    request: pytest.FixtureRequest,
    bench: VerlBench,
    pool: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[VerlRun, list[dict[str, Any]]]:
    """A run in which everybody writes greedily, and what its engines recorded."""
    record, weights = tmp_path_factory.mktemp("record"), tmp_path_factory.mktemp("weights")
    run = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6", f"{TANDEM}.validation=team"),
        f"{TANDEM}.junior=[{','.join(pool)}]",
        f"{TANDEM}.record={record}",
        f"{TANDEM}.measure_every=1",
        f"{ROLLOUT}.top_k=1",
        f"{ROLLOUT}.max_model_len=256",
        "data.max_response_length=96",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.test_freq={STEPS}",
        *mode_flags(request.param, weights),
        name=request.param,
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, all_records(record)


def rollouts(run: VerlRun) -> list[dict[str, Any]]:
    return [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]


def parts_of(row: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The engines' records of a response, in the order in which they were written."""
    ours = [record for record in records if record["tandem_seed"] == row["tandem_seed"]]
    return sorted(ours, key=lambda record: record.get("tandem_prefix_length", 0))


def test_authorship_of_every_response_is_the_replay_of_the_whole(trained: Any, rule: Rule) -> None:
    rows = rollouts(trained[0]) + trained[0].rollouts(STEPS, "validation")
    assert len({row["tandem_seed"] for row in rows}) == len(rows)
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
        assert row["tandem_segments"] == [[row["tandem_seed"], 0, len(row["response_ids"])]]


def test_every_response_says_its_junior_and_each_prompt_has_one(
    trained: Any, pool: list[str]
) -> None:
    """The prompts that were asked in a step take turns; an asynchronous trainer mixes them."""
    run, _ = trained
    assert {row["tandem_junior"] for row in rollouts(run)} == set(pool)
    for step in range(1, STEPS + 1):
        rows = run.rollouts(step)
        if run.folder.name.startswith("sync"):
            assert Counter(row["tandem_junior"] for row in rows) == dict.fromkeys(pool, 4)
        of_prompt: dict[str, set[str]] = {}
        for row in rows:
            of_prompt.setdefault(row["input"], set()).add(row["tandem_junior"])
        assert [len(juniors) for juniors in of_prompt.values()] == [1] * 4
    validated = run.rollouts(STEPS, "validation")
    assert sorted(row["tandem_junior"] for row in validated) == sorted(pool)


def test_engines_recorded_every_part_with_the_junior_and_the_authors_that_were_learned_from(
    trained: Any, rule: Rule
) -> None:
    run, records = trained
    for row in rollouts(run):
        parts = parts_of(row, records)
        starts = [part.get("tandem_prefix_length", 0) for part in parts]
        assert starts[0] == 0
        # An engine may have written more than what had left it when it was interrupted.
        for part, stop in zip(parts, [*starts[1:], len(row["response_ids"])], strict=True):
            assert part["tandem_junior"] == row["tandem_junior"]
            assert part["response_ids"][:stop] == row["response_ids"][:stop]
            assert part["authorship"][:stop] == row["authorship"][:stop]
    # Whether the run still came to train on them, or ended before.
    resumed = [record for record in records if "tandem_prefix_length" in record]
    assert bool(resumed) is not run.folder.name.startswith("sync")
    for record in resumed:
        replayed = rule.replay(record["response_ids"], record["tandem_seed"]).tolist()
        assert record["authorship"] == replayed


def test_juniors_tokens_are_the_greedy_choice_of_the_junior_that_is_named(
    trained: Any, pool: list[str], tokenizer: Any
) -> None:
    rows = []
    for row in rollouts(trained[0]):
        (said,) = re.findall(r"Say the letter e \d+ times", row["input"])
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": said}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        rows.append((row["tandem_junior"], prompt, row["response_ids"], row["authorship"]))
    assert_named_junior_wrote(rows, pool, TOLERANCE)


def test_metrics_of_each_junior_are_those_of_its_rows(trained: Any, pool: list[str]) -> None:
    run, _ = trained
    for step, metrics in enumerate(run.steps, 1):
        for name in pool:
            rows = [row for row in run.rollouts(step) if row["tandem_junior"] == name]
            prefix = f"tandem/juniors/{Path(name).name}"
            bits = [bit for row in rows for bit in row["authorship"]]
            assert metrics[f"{prefix}/responses"] == len(rows)
            if rows:
                assert metrics[f"{prefix}/senior_share"] == pytest.approx(sum(bits) / len(bits))
    for name in pool:
        measured = [m[f"tandem/juniors/{Path(name).name}/overlap"] for m in run.steps[:1]]
        assert all(0 < overlap < 1 for overlap in measured)
