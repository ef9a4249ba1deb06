"""TRL's trainer on prompts with images: engine and trainer see the same pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")

import torch
from support.grpo import relative_error
from support.images import ImageReference, make_seeing, picture
from support.records import all_records
from support.trl_run import TRLBench, TRLRun
from support.trl_tools import expected_of
from support.vision_packages import offer_torchvision

from tandem_plugin.training.images import collapsed

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


def check(run: TRLRun, record: Path, marker: list[int], close: float = CLOSE) -> list[int]:
    """Hold masks to the engine's record, and its log-probabilities to the trainer's own.

    Returns the turns of each response. close: the most that they may differ by.
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
    assert max(step["sampling/sampling_logp_difference/max"] for step in steps) <= close
    assert all(step["grad_norm"] > 0 for step in steps)
    return turns


@pytest.fixture(scope="module")
def marker(tokenizer: Any) -> list[int]:
    return list(tokenizer("<|im_start|>assistant\n").input_ids)


@pytest.mark.long
def test_images_of_an_environment_are_seen_in_every_turn(
    bench: TRLBench, marker: list[int], tmp_path: Path
) -> None:
    """At its reset, and in what its tool returns, which nobody wrote."""
    run = bench.run(
        settings(bench, record=str(tmp_path), rollouts="rollouts"),
        name="painters",
        tools="painters",
        max_completion_length=256,
        **BATCHES,
    )
    # Next to an image a placeholder is likelier: to the trainer, whose softmax counts it.
    turns = check(run, tmp_path, marker, close=0.05)
    assert {1, 2} <= set(turns)
    reference = ImageReference(bench.model, bench.model)
    first = run.caught()["generated"][0]
    columns = (first[name] for name in ("prompts", "completions", "masks", "log_probs"))
    right, wrong, later = [], [], 0
    for row, (prompt, response, mask, log_probs) in enumerate(zip(*columns, strict=True)):
        trained = torch.tensor(mask).bool()
        placeholders = torch.tensor(response) == reference.placeholder
        assert not any(trained[placeholders])
        calls = int((placeholders.diff(prepend=torch.tensor([False])) & placeholders).sum())
        later += calls
        shown = [picture(row), *(picture(101 + row + call) for call in range(calls))]
        others = [picture(900 + number, each.size) for number, each in enumerate(shown)]
        for errors, seen in ((right, shown), (wrong, others)):
            expected = _engines_log_probs(reference, prompt, response, seen)
            errors.append((expected - torch.tensor(log_probs))[trained].abs())
    print("nats per token", torch.cat(right).max(), torch.cat(wrong).mean(), later)
    assert later > 0
    assert torch.cat(right).max() < 1e-3 < 0.01 < torch.cat(wrong).mean()


@torch.no_grad()
def _engines_log_probs(
    reference: ImageReference, prompt: list[int], response: list[int], shown: list[Any]
) -> torch.Tensor:
    """Of each token of a response, in which later images may stand: float32 ``[tokens]``.

    The engine samples no placeholder, of images or of videos.
    """
    single = collapsed(prompt, {reference.placeholder})
    logits = reference.raw_logits(True, single, shown, response)
    config = reference.models[True].config
    logits[:, [config.image_token_id, config.video_token_id]] = -torch.inf
    return logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]


def test_trainer_and_engine_see_the_images_of_the_data(
    bench: TRLBench, marker: list[int], tmp_path: Path
) -> None:
    """The second step's engine has the tower of the first update, and no encoding of before."""
    run = bench.run(
        settings(bench, record=str(tmp_path)), name="column", tools="pictures", **BATCHES
    )
    assert set(check(run, tmp_path, marker)) == {1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("excluded", "how"),
    [
        (".*visual.*", "syncs send the adapter alone"),
        (None, "the adapter merged, because of LoRA outside the language model"),
    ],
)
def test_an_adapter_is_sent_alone_or_merged_with_its_tower(
    marker: list[int], tmp_path: Path, excluded: str | None, how: str
) -> None:
    """Beside its base, of a class that checkpoints name as the trainer does."""
    model = make_seeing(tmp_path / "senior", "qwen3-vl", seed=0)
    bench, record = TRLBench.make(tmp_path, model), tmp_path / "record"
    run = bench.run(
        settings(bench, junior=None, record=str(record)),
        lora={"r": 8, "target_modules": "all-linear", "exclude_modules": excluded},
        name="adapter",
        tools="pictures",
        environment={"VLLM_MLA_DISABLE": "1"},  # vLLM's CPU platform cannot start it otherwise
        **{**BATCHES, "learning_rate": 1e-2},
    )
    assert how in run.log
    check(run, record, marker)
    first, second = (step["tandem/overlap"] for step in run.steps[:2])
    assert first == pytest.approx(1, abs=1e-5)
    assert second < 0.99


@pytest.mark.long
def test_update_is_a_plain_loops_over_the_seniors_tokens(bench: TRLBench) -> None:
    """Token by token without padding, each row with the pictures of its own prompt."""
    run = bench.run(
        settings(bench),
        name="gradient",
        tools="pictures",
        **{**BATCHES, "max_steps": 1},
        max_grad_norm=1e9,
        vllm_importance_sampling_correction=False,
    )
    assert run.exit_code == 0, run.log[-3000:]
    generated = run.caught()["generated"][0]
    scores = torch.tensor([row["score"] for row in run.rollouts(1)]).double().reshape(-1, 4)
    deviations = scores.std(1, keepdim=True) + 1e-4
    advantages = ((scores - scores.mean(1, keepdim=True)) / deviations).flatten().tolist()
    assert any(advantages)
    reference = ImageReference(bench.model, bench.model)
    model = reference.models[True].double()
    trained = sum(map(sum, generated["masks"]))
    columns = (generated[name] for name in ("prompts", "completions", "masks"))
    for advantage, prompt, response, mask in zip(advantages, *columns, strict=True):
        log_probs = _log_probs(reference, prompt, response)
        (-advantage * log_probs[torch.tensor(mask).bool()].sum() / trained).backward()
    expected = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    assert any(".visual." in name for name in expected)
    assert relative_error(torch.load(run.folder / "gradients.pt"), expected) < 1e-3


def _log_probs(reference: ImageReference, prompt: list[int], response: list[int]) -> torch.Tensor:
    """Of each token of a response: float64 ``[tokens]``. prompt: with each image's tokens."""
    text = reference.processor.tokenizer.decode(prompt)
    (number,) = map(int, re.findall(r"licence number (\d+) is", text))
    pictures = [picture(10 * number + n) for n in range(1 + number % 3)]
    single = collapsed(prompt, {reference.placeholder})
    assert reference.expanded(single, pictures) == prompt
    logits = reference.raw_logits(True, single, pictures, response)
    return logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]
