"""TRL's trainer on prompts with images: engine and trainer see the same pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

from support.images import make_seeing
from support.records import all_records
from support.trl_run import TRLBench, TRLRun
from support.trl_tools import expected_of
from support.vision_packages import offer_torchvision

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
SEED = 7
CLOSE = 0.02
"""The most that a token's log-probability may differ, in nats: the engine never samples two of a
thousand ids, the placeholders, which the trainer's softmax counts."""
BATCHES = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "max_steps": 2,
    "learning_rate": 1e-3,
    "vllm_max_model_length": 768,
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TRLBench:
    folder = tmp_path_factory.mktemp("images")
    make_seeing(folder / "junior", "qwen2.5-vl", seed=1)
    return TRLBench.make(folder, make_seeing(folder / "senior", "qwen2.5-vl", seed=0))


def settings(bench: TRLBench, **more: Any) -> dict[str, Any]:
    junior = str(bench.folder / "junior")
    own = {"schedule": "word", "cap": 3, "seed": SEED, "junior": junior, "measure_every": 1}
    return {**own, "images": True, **more}


def check(run: TRLRun, record: Path, marker: list[int]) -> list[int]:
    """Hold masks to the engine's record, and its log-probabilities to the trainer's own.

    Returns the turns of each response.
    """
    assert run.exit_code == 0, run.log[-3000:]
    records = {row["tandem_seed"]: row for row in all_records(record)}
    turns = []
    for one in run.caught()["generated"]:
        expected = expected_of(one, SEED, 0, records, marker)
        assert one["masks"] == [mask for mask, _ in expected]
        turns += [count for _, count in expected]
    steps = [step for step in run.steps if "reward" in step]
    assert len(steps) == BATCHES["max_steps"]
    assert max(step["sampling/sampling_logp_difference/max"] for step in steps) <= CLOSE
    assert all(step["grad_norm"] > 0 for step in steps)
    return turns


@pytest.fixture(scope="module")
def marker(tokenizer: Any) -> list[int]:
    return list(tokenizer("<|im_start|>assistant\n").input_ids)


def test_trainer_and_engine_see_the_images_of_the_data(
    bench: TRLBench, marker: list[int], tmp_path: Path
) -> None:
    """The second step's engine has the tower of the first update, and no encoding of before."""
    run = bench.run(
        settings(bench, record=str(tmp_path)), name="column", tools="pictures", **BATCHES
    )
    assert set(check(run, tmp_path, marker)) == {1}
