"""OpenRLHF's trainer on prompts with images: what it samples, what it learns, what it syncs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

import torch
from PIL import Image
from support import openrlhf_painting_agent
from support.images import ImageReference, make_seeing, picture
from support.openrlhf_run import OpenRLHFBench, OpenRLHFRun
from support.openrlhf_setup import (
    PROMPTS,
    SAMPLES,
    STEPS,
    assert_masks_are_the_replay,
    batches,
    losses,
    replayed,
)
from support.trainer_run import assert_stopped
from support.vision_packages import offer_torchvision
from transformers import AutoModelForImageTextToText

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.images import collapsed

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
SIZES = ["--data.max_len", "192", "--train.micro_batch_size", "1"]
CLOSE = 0.03
"""The most that a token's log-probability may differ on average, in nats."""
SHOWN = ["--data.max_images_per_prompt", "1"]


@pytest.fixture(scope="module")
def junior(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seeing(tmp_path_factory.mktemp("junior"), "qwen2.5-vl", seed=1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> OpenRLHFBench:
    folder = tmp_path_factory.mktemp("openrlhf")
    model = make_seeing(folder / "senior", "qwen2.5-vl", seed=0)
    return OpenRLHFBench.make(folder / "bench", model, pictures=True)


@pytest.fixture(scope="module")
def rule(bench: OpenRLHFBench) -> Rule:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6})
    return TandemRules(config, Vocabulary.from_path(bench.model)).default


@pytest.fixture(scope="module")
def flags(junior: Path) -> list[str]:
    settings = {"schedule": "word", "cap": 6, "seed": 7, "junior": junior}
    return [*SIZES, *(f"--tandem.{name}={value}" for name, value in settings.items())]


@pytest.fixture(scope="module")
def trained(
    bench: OpenRLHFBench, flags: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[OpenRLHFRun, Path]:
    captured = tmp_path_factory.mktemp("captured")
    run = bench.run(
        *flags,
        "--tandem.images=true",
        *SHOWN,
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="trained",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == STEPS
    return run, captured


def test_masks_are_the_replay_and_juniors_tokens_contribute_nothing(
    trained: tuple[OpenRLHFRun, Path], rule: Rule
) -> None:
    _, captured = trained
    assert [len(rows) for rows in batches(captured)] == [PROMPTS * SAMPLES] * STEPS
    assert_masks_are_the_replay(captured, rule)
    for loss in losses(captured):
        mask = loss["mask"].bool()
        assert loss["gradient"][~mask].abs().sum() == 0
        assert (loss["gradient"][mask] != 0).equal(loss["advantages"][mask] != 0)


def test_engine_and_actor_agree_after_a_sync_of_the_tower(
    trained: tuple[OpenRLHFRun, Path], bench: OpenRLHFBench
) -> None:
    """Both compute in bfloat16, by other kernels; the engine never samples a placeholder."""
    run, captured = trained
    count = len(losses(captured)) // STEPS
    steps = [losses(captured)[step * count : (step + 1) * count] for step in range(STEPS)]
    gaps = [float(difference(step).abs().mean()) for step in steps]
    print("nats per token", gaps)
    assert max(gaps) < CLOSE
    before, after = (
        AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.bfloat16).state_dict()
        for folder in (bench.model, run.folder / "model")
    )
    of_tower = [name for name in before if ".visual." in name]
    assert any(not torch.equal(before[name], after[name]) for name in of_tower)


def difference(step: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """The actor's log p of each trained token of a step less the engine's: float32, nats."""
    pairs = ((loss["log_probs"] - loss["rollout_log_probs"].float(), loss["mask"]) for loss in step)
    return torch.cat([gap[0].float()[mask[0].bool()] for gap, mask in pairs])


def number_of(reference: ImageReference, row: dict[str, Any]) -> int:
    """Of a row's prompt, among the bench's."""
    text = reference.processor.tokenizer.decode(row["tokens"])
    return int(re.findall(r"letter e (\d+) times", text)[0])


def test_both_see_the_pictures_of_their_prompts(
    trained: tuple[OpenRLHFRun, Path], bench: OpenRLHFBench, rule: Rule
) -> None:
    """The actor's log-probabilities are a plain model's over the picture, and over no other."""
    reference = ImageReference(bench.model, bench.model)
    right, wrong = [], []
    for row, loss in rows_with_losses(trained[1], rule):
        shown = [Image.open(bench.folder / f"{number_of(reference, row)}.png")]
        right.append(_error(reference, row, loss, shown))
        wrong.append(_error(reference, row, loss, [picture(999, shown[0].size)]))
    means = [float(torch.cat(errors).mean()) for errors in (right, wrong)]
    print("nats per token from a plain model over the picture, and over others", means)
    assert means[0] < 0.1 * means[1]


def rows_with_losses(captured: Path, rule: Rule) -> list[tuple[dict[str, Any], Any]]:
    """The rows of the first step, each with what reached the loss."""
    first = batches(captured)[0]
    by_mask = {tuple(loss["mask"][0].int().tolist()): loss for loss in losses(captured)}
    return [(row, by_mask[tuple(replayed(row, rule))]) for row in first]


@torch.no_grad()
def _error(
    reference: ImageReference, row: dict[str, Any], loss: Any, shown: list[Any], turn: int = 0
) -> torch.Tensor:
    """How far the senior's log-probabilities of a turn are from a plain model's: float32, nats.

    shown: the pictures among all tokens of the row, in their order.
    """
    _, first, _ = row["segments"][0]
    _, start, stop = row["segments"][turn]
    # One placeholder in the place of all of the prompt's: the reference expands them.
    prompt = collapsed(row["tokens"][:first], {reference.placeholder})
    assert reference.expanded(prompt, shown[:1]) == row["tokens"][:first]
    response = row["tokens"][first:]
    logits = reference.raw_logits(True, prompt, shown, response)
    expected = logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]
    mask = loss["mask"][0].bool()
    of_turn = slice(start - 1, stop - 1)
    actual = loss["log_probs"][0].float()
    return (actual[of_turn] - expected[start - first : stop - first])[mask[of_turn]].abs()


def test_pictures_of_an_agents_later_turns_are_trained_on(
    bench: OpenRLHFBench, flags: list[str], rule: Rule, tmp_path: Path
) -> None:
    """Engine and actor see those of the turns before, and nobody wrote their placeholders."""
    run = bench.run(
        *flags,
        *("--data.max_len", "320", "--data.max_samples", "4", "--tandem.images=true"),
        *("--data.max_images_per_prompt", "2"),  # the picture after the last turn has no answer
        *("--train.agent_func_path", str(openrlhf_painting_agent.__file__)),
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="painter",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert_masks_are_the_replay(tmp_path, rule)
    gap = float(difference(losses(tmp_path)).abs().mean())
    reference = ImageReference(bench.model, bench.model)
    errors: dict[str, list[torch.Tensor]] = {"first": [], "second": [], "other": []}
    for row, loss in rows_with_losses(tmp_path, rule):
        number = number_of(reference, row)
        turns = openrlhf_painting_agent.TURNS
        painted = [openrlhf_painting_agent.painted(number, turn + 1) for turn in range(turns)]
        shown = [Image.open(bench.folder / f"{number}.png"), *painted]
        assert len(row["segments"]) == turns
        trained = loss["mask"][0].bool()
        assert not any(trained[torch.tensor(row["tokens"][1:]) == reference.placeholder])
        others = [shown[0], picture(999, painted[0].size), painted[1]]
        for name, turn, seen in (
            ("first", 0, shown),
            ("second", 1, shown),
            ("other", 1, others),
        ):
            errors[name].append(_error(reference, row, loss, seen, turn))
    first, second, other = (float(torch.cat(errors[name]).mean()) for name in errors)
    print("nats per token", {"engine": gap, "first": first, "second": second, "other": other})
    assert gap < CLOSE
    assert max(first, second) < 0.1 * other


def test_images_on_one_side_alone_stop_the_run(bench: OpenRLHFBench, flags: list[str]) -> None:
    run = bench.run(*flags, *SHOWN, name="off", watch="openrlhf-images-differ")
    assert_stopped(run, "openrlhf-images-differ")
