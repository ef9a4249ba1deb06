"""Prompts with images: both models' own sight of them, against Hugging Face's, on both runners."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.drafting import has_drafting
from support.engine import RUNNERS, tandem_engine
from support.hybrids import with_states
from support.images import (
    FAMILIES,
    ImageReference,
    answers,
    make_seeing,
    prompts_with_images,
)
from support.reference import alternating
from support.vision_packages import offer_torchvision

pytestmark = [
    pytest.mark.skipif(not has_drafting(), reason="images need vLLM 0.29"),
    pytest.mark.skipif(not offer_torchvision(), reason="no torchvision: constraints/install.py"),
]
ALTERNATE = {"schedule": "step", "boundaries": "every", "images": True}


@dataclass
class Checkpoints:
    """Checkpoints of one family, made when they are first asked for."""

    folder: Path
    family: str

    def __getattr__(self, name: str) -> Path:
        settings: dict[str, Any] = {
            "first": {"seed": 0},
            "junior": {"seed": 1},
            "other": {"seed": 2},
            "wide": {"seed": 3, "hidden": 96},
            "tied": {"seed": 4, "tied": True},
            "tied_other": {"seed": 5, "tied": True},
        }[name]
        if not (self.folder / name).exists():
            make_seeing(self.folder / name, self.family, **settings)
        return self.folder / name

    def reference(self, senior: str = "first", junior: str = "junior") -> ImageReference:
        return ImageReference(getattr(self, senior), getattr(self, junior))


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoints]:
    return {name: Checkpoints(tmp_path_factory.mktemp(name), name) for name in FAMILIES}


@contextmanager
def engine_of(
    runner: str, models: Checkpoints, senior: str, tandem: dict[str, Any] | None, **options: Any
) -> Iterator[Any]:
    """An engine for up to 4 images per prompt; tandem: settings, None for vLLM alone."""
    settings = {"max_model_len": 512, "limit_mm_per_prompt": {"image": 4}} | options
    with ExitStack() as stack:
        if models.family == "qwen3.5":
            settings |= stack.enter_context(with_states())
        # vLLM's CPU platform asks Qwen3-VL's text config for its architecture, which it lacks.
        stack.enter_context(mock.patch.dict(os.environ, VLLM_MLA_DISABLE="1"))
        if runner == "v2":  # interpreted: vLLM's largest image takes minutes
            settings |= {"skip_mm_profiling": True}
        yield stack.enter_context(
            tandem_engine(runner, getattr(models, senior), tandem, **settings)
        )


ALWAYS = [("v1", "qwen2.5-vl")]
PAIRS = [
    pytest.param(runner, family, marks=() if (runner, family) in ALWAYS else pytest.mark.long)
    for runner in RUNNERS
    for family in FAMILIES
    if (runner, family) != ("v2", "qwen3.5")
]
TIGHT = {
    "block_size": 32,
    "num_gpu_blocks_override": 26,
    "max_num_batched_tokens": 48,
    "max_num_seqs": 8,
}
"""Images are cut between steps, and requests preempted."""


@pytest.mark.parametrize(("runner", "family"), PAIRS)
def test_each_author_sees_the_images(
    runner: str, family: str, families: dict[str, Checkpoints]
) -> None:
    models = families[family]
    prompts = prompts_with_images(models.first)
    with engine_of(runner, models, "first", {**ALTERNATE, "junior": models.junior}) as engine:
        responses = answers(engine, prompts)
        again = answers(engine, prompts)
    assert again == responses
    seen = models.reference().seen(prompts, responses, lambda: alternating(True))
    print(runner, family, seen)
    assert seen.wrong == 0
    assert seen.telling > seen.shown / 10
