"""Unified checkpoints, which also see images, for text: their text model alone, and its syncs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from support import worker
from support.drafting import has_drafting
from support.engine import tandem_engine
from support.families import UNIFIED, make_family, make_unified
from support.hybrids import with_states
from support.reference import Reference, alternating
from support.requests import PROMPTS, greedy

pytestmark = pytest.mark.skipif(not has_drafting(), reason="recurrent states need vLLM 0.29")

LENGTH = 12


@dataclass
class Checkpoints:
    """Text models, and unified checkpoints with the same text models."""

    folder: Path
    family: str

    def text(self, name: str) -> Path:
        return self.folder / f"{name}-text"

    def unified(self, name: str) -> Path:
        return self.folder / name

    def trained(self, name: str) -> Path:
        """By the names of a unified class in a trainer's memory."""
        return self.folder / name / "trained"


ONE_ALWAYS = [
    pytest.param(one, marks=() if one == "qwen3.5" else pytest.mark.long) for one in UNIFIED
]


@pytest.fixture(scope="module", params=ONE_ALWAYS)
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tokenizer: Any
) -> Checkpoints:
    made = Checkpoints(tmp_path_factory.mktemp("unified"), request.param)
    family, _ = UNIFIED[request.param]
    tied = {"tie_word_embeddings": True} if family == "qwen3.5" else {}
    for seed, name in enumerate(("first", "other", "junior")):
        text = make_family(made.text(name), family, seed=seed, tokenizer=tokenizer, **tied)
        make_unified(made.unified(name), text, request.param)
    return made


def wrong(engine: Any, tokenizer: Any, senior: Path, junior: Path) -> int:
    """How many tokens are not their author's, of greedy responses that alternate."""
    prompts = [tokenizer(prompt).input_ids for prompt in PROMPTS]
    responses = greedy(engine, prompts, [{"seed": 1}] * len(prompts), LENGTH)
    reference = Reference(senior, junior)
    found = [
        token == choice
        for prompt, response in zip(prompts, responses, strict=True)
        for token, choice in zip(
            response, reference.choices(prompt, response, alternating(True)), strict=True
        )
    ]
    assert len(found) == LENGTH * len(PROMPTS)
    return found.count(False)


def tandem(junior: Path | None) -> dict[str, Any]:
    alternate = {"schedule": "step", "boundaries": "every"}
    return alternate if junior is None else alternate | {"junior": junior}


@pytest.fixture(scope="module")
def engine(models: Checkpoints) -> Iterator[Any]:
    settings = tandem(models.unified("junior"))
    with (
        with_states() as options,
        tandem_engine("v1", models.unified("first"), settings, **options) as engine,
    ):
        yield engine


def test_two_unified_checkpoints_answer_as_their_text_models(
    engine: Any, models: Checkpoints, tokenizer: Any
) -> None:
    names = engine.collective_rpc(worker.parameter_names)[0]
    assert not [name for name in names if "vis" in name]
    assert wrong(engine, tokenizer, models.text("first"), models.text("junior")) == 0


@pytest.mark.parametrize("names", ["unified", "trained", "text"])
@pytest.mark.parametrize("bucket", [1, 7, 1_000])
def test_weights_are_synced_by_the_names_of_either_class(
    engine: Any, models: Checkpoints, tokenizer: Any, names: str, bucket: int
) -> None:
    """A trainer may train the whole checkpoint, or its text model."""
    sent = getattr(models, names)("other")
    sends_vision = any("vis" in name for name in load_file(sent / "model.safetensors"))
    assert sends_vision is (names != "text")
    engine.collective_rpc(worker.sync, args=(str(sent), bucket))
    engine.reset_prefix_cache()
    assert wrong(engine, tokenizer, models.text("other"), models.text("junior")) == 0
    engine.collective_rpc(worker.sync, args=(str(models.unified("first")), bucket))
    engine.reset_prefix_cache()
    assert wrong(engine, tokenizer, models.text("first"), models.text("junior")) == 0


def test_prompt_with_an_image_is_rejected(engine: Any, tokenizer: Any) -> None:
    from PIL import Image

    prompt = {
        "prompt_token_ids": tokenizer(PROMPTS[0]).input_ids,
        "multi_modal_data": {"image": Image.new("RGB", (32, 32))},
    }
    with pytest.raises(ValueError, match="text-only"):
        engine.generate([prompt], use_tqdm=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("senior", "junior"),
    [("unified", None), ("unified", "text"), ("text", "unified")],
    ids=["itself", "a text junior", "a unified junior"],
)
def test_unified_and_text_checkpoints_go_together(
    models: Checkpoints, tokenizer: Any, senior: str, junior: str | None
) -> None:
    given = None if junior is None else getattr(models, junior)("junior")
    first = getattr(models, senior)("first")
    with with_states() as options, tandem_engine("v1", first, tandem(given), **options) as engine:
        of_junior = models.text("first" if junior is None else "junior")
        assert wrong(engine, tokenizer, models.text("first"), of_junior) == 0
        # A sync reaches the senior alone.
        engine.collective_rpc(worker.sync, args=(str(models.unified("other")), 7))
        engine.reset_prefix_cache()
        assert wrong(engine, tokenizer, models.text("other"), of_junior) == 0


@pytest.mark.long
def test_unified_juniors_draft_for_unified_seniors(models: Checkpoints, tokenizer: Any) -> None:
    if models.family == "qwen3.5":
        pytest.skip("a junior with recurrent states does not draft")
    settings = {**tandem(models.unified("junior")), "mode": "speculative", "drafts": 3}
    # vLLM makes a configuration of its own of the draft model, for which it imports torchvision.
    with (
        with_states(native=True),
        tandem_engine("v2", models.unified("first"), settings) as engine,
    ):
        assert wrong(engine, tokenizer, models.text("first"), models.text("junior")) == 0
        engine.collective_rpc(worker.sync, args=(str(models.trained("other")), 7))
        engine.reset_prefix_cache()
        assert wrong(engine, tokenizer, models.text("other"), models.text("junior")) == 0
        (stats,) = engine.collective_rpc("tandem_draft_stats")
    assert stats["drafts"] > 0
