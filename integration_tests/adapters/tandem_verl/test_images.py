"""verl's trainer on prompts with images: what it samples, what it learns, and what it syncs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support import agent_loops
from support.grpo import GRPOReference, relative_error
from support.images import ImageReference, make_seeing
from support.trainer_run import assert_stopped
from support.verl_run import TANDEM, VerlBench, VerlRun, pictures_of
from support.vision_packages import offer_torchvision

PICTURE_TOOL = Path(agent_loops.__file__).with_name("picture_tool.py")
"""Loaded by verl alone: its tool has the name of another one's."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
MODEL, ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
SIZES = ["data.max_prompt_length=192", f"{ROLLOUT}.max_model_len=512", "data.image_key=images"]
SEED = 7
CLOSE = 5e-3
"""The most that a token's probability may differ: the engine never samples two of a thousand ids,
the placeholders, which the trainer's softmax counts."""


@pytest.fixture(scope="module")
def junior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seeing(tmp_path_factory.mktemp("junior"), "qwen2.5-vl", seed=1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> VerlBench:
    folder = tmp_path_factory.mktemp("verl")
    model = make_seeing(folder / "senior", "qwen2.5-vl", seed=0)
    return VerlBench.make(folder / "data", model, pictures=True)


@pytest.fixture(scope="module")
def flags(junior: Path) -> list[str]:
    settings = {"schedule": "word", "cap": 6, "seed": SEED, "junior": junior, "images": True}
    return [*SIZES, *(f"{TANDEM}.{name}={value}" for name, value in settings.items())]


@pytest.fixture(scope="module")
def trained(
    bench: VerlBench, flags: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[VerlRun, Path]:
    captured = tmp_path_factory.mktemp("captured")
    run = bench.run(
        *flags,
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="trained",
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, captured


def test_rollout_and_actor_agree_after_a_sync_of_the_tower(trained: tuple[VerlRun, Path]) -> None:
    """Holds only if both see the same pictures, and the second step's engine the new tower."""
    run, captured = trained
    differences = [step["training/rollout_probs_diff_max"] for step in run.steps]
    assert len(differences) == 2
    assert max(differences) <= CLOSE
    before, after = (torch.load(captured / f"step-{n}.pt")["parameters"] for n in range(2))
    of_tower = [name for name in before if ".visual." in name]
    assert of_tower
    assert any(not torch.equal(before[name], after[name]) for name in of_tower)


class SeeingReference(GRPOReference):
    """The same loss, over prompts with the pictures that their numbers stand for."""

    def __init__(self, checkpoint: Path, rollouts: list[dict[str, Any]]) -> None:
        self._images = ImageReference(checkpoint, checkpoint)
        self.model = self._images.models[True].double()
        super().__init__(checkpoint, rollouts)

    def load(self, checkpoint: Path) -> Any:
        return self.model

    def _distributions(self, row: dict[str, Any]) -> torch.Tensor:
        (number,) = map(int, re.findall(r"letter e (\d+) times", row["input"]))
        pictures = pictures_of(number)
        content = [{"type": "image"}] * len(pictures)
        content.append({"type": "text", "text": f"Say the letter e {number} times"})
        text = self._images.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
        prompt = self.tokenizer(text).input_ids
        logits = self._images.raw_logits(True, prompt, pictures, row["response_ids"])
        return logits.double().log_softmax(-1)


def test_update_is_the_plain_loops_over_the_seniors_tokens(
    bench: VerlBench, trained: tuple[VerlRun, Path]
) -> None:
    run, captured = trained
    step = torch.load(captured / "step-0.pt")
    reference = SeeingReference(bench.model, run.rollouts(1))
    expected = reference.gradients("token-mean")
    ours = {name: step["gradients"][name] for name in expected}
    assert any(".visual." in name for name in expected)
    assert relative_error(ours, expected) < 1e-3


@pytest.mark.long
def test_a_tool_may_return_an_image(flags: list[str], bench: VerlBench, tmp_path: Path) -> None:
    """It comes into the response, where nobody wrote its placeholders."""
    own = VerlBench.make(tmp_path, bench.model, agents=["tool_agent"], pictures=True)
    run = own.run(
        *flags,
        f"{ROLLOUT}.multi_turn.function_tool_path={PICTURE_TOOL}",
        f"{ROLLOUT}.multi_turn.format={agent_loops.PARSER}",
        f"{ROLLOUT}.multi_turn.max_assistant_turns={agent_loops.TURNS}",
        "data.max_response_length=192",
        hook="agent_loops",
        name="tool",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert max(step["training/rollout_probs_diff_max"] for step in run.steps) <= CLOSE
    placeholder = ImageReference(bench.model, bench.model).placeholder
    rows = [row for step in (1, 2) for row in run.rollouts(step)]
    shown = [
        (token, author)
        for row in rows
        for token, author in zip(row["response_ids"], row["authorship"], strict=True)
        if token == placeholder
    ]
    assert shown
    assert not any(author for _, author in shown)


def test_an_adapter_of_the_language_model_is_the_seniors(
    bench: VerlBench, flags: list[str]
) -> None:
    """Beside its base. Actor and engine agree only if the engine has the adapter of each sync."""
    run = bench.run(
        *(flag for flag in flags if not flag.startswith(f"{TANDEM}.junior")),
        f"{TANDEM}.measure_every=1",
        f"{MODEL}.lora_rank=8",
        f"{MODEL}.lora_alpha=64",
        f"{MODEL}.exclude_modules='.*visual.*'",
        "actor_rollout_ref.actor.optim.lr=1e-2",
        "trainer.total_training_steps=3",
        name="adapter",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 3
    assert max(step["training/rollout_probs_diff_max"] for step in run.steps) <= CLOSE
    assert min(step["actor/grad_norm"] for step in run.steps) > 0
    first, *later = (step["tandem/overlap"] for step in run.steps)
    assert first == pytest.approx(1, abs=1e-5)
    assert max(later) < 0.99  # so the senior has moved, by far more than the tolerance


def test_images_for_an_engine_of_text_stop_the_run(bench: VerlBench, flags: list[str]) -> None:
    text = [flag for flag in flags if not flag.startswith(f"{TANDEM}.images")]
    run = bench.run(*text, name="off", watch="verl-images-unsupported")
    assert_stopped(run, "verl-images-unsupported")
