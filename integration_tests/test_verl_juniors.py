"""verl's own trainer with two engines and a pool of two juniors: who wrote with the senior."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.greedy import GreedyReader
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
    return [
        "trainer.v1.trainer_mode=separate_async",
        "trainer.v1.separate_async.parameter_sync_step=1",
        "ray_kwargs.ray_init.num_gpus=3",
        f"{ROLLOUT}.nnodes=1",
        f"{ROLLOUT}.n_gpus_per_node=2",
        f"{ROLLOUT}.max_num_seqs=2",  # so that each sync meets responses midway
        f"{ROLLOUT}.checkpoint_engine.backend=file",
        f"{ROLLOUT}.checkpoint_engine.custom_backend_module=support.file_sync",
        f"+{ROLLOUT}.checkpoint_engine.engine_kwargs.file.folder={folder}",
    ]


def tandem(pool: list[str]) -> list[str]:
    return [
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.cap=6",
        f"{TANDEM}.validation=team",
        f"{TANDEM}.junior=[{','.join(pool)}]",
    ]


@pytest.fixture(scope="module", params=["sync", "separate_async"])
def trained(
    request: pytest.FixtureRequest,
    bench: VerlBench,
    pool: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[VerlRun, list[dict[str, Any]]]:
    """A run in which everybody writes greedily, and what its engines recorded."""
    record, weights = tmp_path_factory.mktemp("record"), tmp_path_factory.mktemp("weights")
    run = bench.run(
        *tandem(pool),
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


def test_every_response_says_its_junior_and_each_prompt_has_one(
    trained: Any, pool: list[str], rule: Rule
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
            replayed = rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
            assert row["authorship"] == replayed
        assert [len(juniors) for juniors in of_prompt.values()] == [1] * 4
    validated = run.rollouts(STEPS, "validation")
    assert sorted(row["tandem_junior"] for row in validated) == sorted(pool)


def test_engines_records_name_the_same_juniors(trained: Any) -> None:
    """Those of every part of a response that was interrupted."""
    run, records = trained
    juniors: dict[int, set[str]] = {}
    for record in records:
        juniors.setdefault(record["tandem_seed"], set()).add(record["tandem_junior"])
    for row in rollouts(run):
        assert juniors[row["tandem_seed"]] == {row["tandem_junior"]}
    if run.folder.name.startswith("separate_async"):
        assert any("tandem_prefix_length" in record for record in records)


def test_juniors_tokens_are_the_greedy_choice_of_the_junior_that_is_named(
    trained: Any, pool: list[str], tokenizer: Any
) -> None:
    """And of the other one hardly ever: it is the named checkpoint that wrote them."""
    readers = {name: GreedyReader(name) for name in pool}
    own, others = [], []
    for row in rollouts(trained[0]):
        (said,) = re.findall(r"Say the letter e \d+ times", row["input"])
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": said}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        for name, reader in readers.items():
            gaps = reader.gaps(prompt, row["response_ids"])
            found = own if name == row["tandem_junior"] else others
            found += [
                gap for gap, senior in zip(gaps, row["authorship"], strict=True) if not senior
            ]
    assert len(own) > 200
    assert max(own) <= TOLERANCE
    assert sum(gap <= TOLERANCE for gap in others) < len(others) / 10


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
