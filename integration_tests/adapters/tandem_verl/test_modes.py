"""verl's asynchronous trainers with two engines: responses that weight syncs interrupt.

Every response is written in one or more parts, by new requests that know how it began. What is
learned from is the replay of the whole, and the engines' own record of every part agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.records import all_records
from support.verl_run import TANDEM, VerlBench, VerlRun
from transformers import AutoModelForCausalLM

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]
BENCH = VerlBench
STEPS = {"colocate_async": 2, "separate_async": 4}
"""Enough for responses that a sync interrupted to be trained on."""
ROLLOUT = "actor_rollout_ref.rollout"
TOLERANCE = 1e-3
"""In logits: how far below the largest a greedy token may be, by rounding alone."""


def mode_flags(mode: str, folder: Path) -> list[str]:
    """Two engines: of two workers that train too, or one on a GPU apart, synced through files."""
    if mode == "colocate_async":
        return ["trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2"]
    return [
        "trainer.v1.separate_async.parameter_sync_step=1",
        "trainer.v1.separate_async.num_warmup_batches=3",
        "ray_kwargs.ray_init.num_gpus=2",
        f"{ROLLOUT}.nnodes=1",
        f"{ROLLOUT}.n_gpus_per_node=1",
        f"{ROLLOUT}.checkpoint_engine.backend=file",
        f"{ROLLOUT}.checkpoint_engine.custom_backend_module=support.file_sync",
        f"+{ROLLOUT}.checkpoint_engine.engine_kwargs.file.folder={folder}",
    ]


@pytest.fixture(scope="module", params=["colocate_async", "separate_async"])
def trained(
    request: pytest.FixtureRequest,
    bench: VerlBench,
    checkpoints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[VerlRun, list[dict[str, Any]]]:
    """A run in which everybody writes greedily, and what its engines recorded."""
    record, weights = tmp_path_factory.mktemp("record"), tmp_path_factory.mktemp("weights")
    run = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6", f"{TANDEM}.validation=team"),
        f"{TANDEM}.junior={checkpoints['other']}",
        f"{TANDEM}.record={record}",
        f"{TANDEM}.measure_every=1",
        f"trainer.v1.trainer_mode={request.param}",
        f"{ROLLOUT}.top_k=1",
        f"{ROLLOUT}.max_model_len=256",
        f"{ROLLOUT}.max_num_seqs=2",  # so that each sync meets responses midway
        "data.max_response_length=96",
        f"trainer.total_training_steps={STEPS[request.param]}",
        f"trainer.test_freq={STEPS[request.param]}",
        *mode_flags(request.param, weights),
        name=request.param,
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, all_records(record)


def rollouts(run: VerlRun) -> list[dict[str, Any]]:
    return [row for step in range(1, len(run.steps) + 1) for row in run.rollouts(step)]


def parts_of(row: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The engines' records of a response, in the order in which they were written."""
    ours = [record for record in records if record["tandem_seed"] == row["tandem_seed"]]
    return sorted(ours, key=lambda record: record.get("tandem_prefix_length", 0))


def test_authorship_of_every_response_is_the_replay_of_the_whole(trained: Any, rule: Rule) -> None:
    rows = rollouts(trained[0]) + trained[0].rollouts(len(trained[0].steps), "validation")
    assert len({row["tandem_seed"] for row in rows}) == len(rows)
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
        assert row["tandem_segments"] == [[row["tandem_seed"], 0, len(row["response_ids"])]]


def test_engines_recorded_every_part_with_the_authors_that_were_learned_from(
    trained: Any, rule: Rule
) -> None:
    run, records = trained
    several = 0
    for row in rollouts(run):
        parts = parts_of(row, records)
        several += len(parts) > 1
        starts = [part.get("tandem_prefix_length", 0) for part in parts]
        assert starts[0] == 0
        # An engine may have written more than what had left it when it was interrupted.
        for part, stop in zip(parts, [*starts[1:], len(row["response_ids"])], strict=True):
            assert part["tandem_junior"] == row["tandem_junior"]
            assert part["response_ids"][:stop] == row["response_ids"][:stop]
            assert part["authorship"][:stop] == row["authorship"][:stop]
    if "separate_async" in run.folder.name:
        assert several  # of the responses that were trained on
    # Whether the run still came to train on them, or ended before.
    resumed = [record for record in records if "tandem_prefix_length" in record]
    assert resumed
    for record in resumed:
        replayed = rule.replay(record["response_ids"], record["tandem_seed"]).tolist()
        assert record["authorship"] == replayed


@torch.no_grad()
def gaps(model: Any, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
    """Of each token, how far its logit is below the largest; 0 for the model's own choice."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0]
    at = logits[len(prompt) - 1 : -1]
    chosen = at.gather(1, torch.tensor(response)[:, None])[:, 0]
    return (at.max(dim=1).values - chosen).tolist()


def test_juniors_tokens_are_its_greedy_choice(
    trained: Any, checkpoints: dict[str, Path], tokenizer: Any
) -> None:
    junior = AutoModelForCausalLM.from_pretrained(checkpoints["other"], dtype=torch.float32).eval()
    found: list[float] = []
    for row in rollouts(trained[0]):
        (said,) = re.findall(r"Say the letter e \d+ times", row["input"])
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": said}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        of_tokens = gaps(junior, prompt, row["response_ids"])
        authors = zip(of_tokens, row["authorship"], strict=True)
        found.extend(gap for gap, senior in authors if not senior)
    assert len(found) > 200
    assert max(found) <= TOLERANCE
