"""Encodings and embeddings of two models in one tensor, over stand-ins for the models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused
from torch import nn

from tandem_plugin.engine import images, senior
from tandem_plugin.engine.images import Images, images_of, limit_to_images, members

SENIOR_WIDTH, JUNIOR_WIDTH, LEVELS, ROWS = 4, 3, 2, 16


class Tower:
    """Encodes a picture's tokens, numbers ``[tokens]``, as multiples of its own factor."""

    def __init__(self, factor: float, width: int, levels: int = 1, tokens: int = 0) -> None:
        self._factor, self._width, self._levels, self._added = factor, width, levels, tokens
        text = SimpleNamespace(hidden_size=width)
        self.config = SimpleNamespace(get_text_config=lambda: text)

    def embed_multimodal(self, *, pixels: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        encodings = []
        for picture in pixels:
            column = torch.cat([picture, torch.zeros(self._added)])[:, None] * self._factor
            encodings.append(column.expand(-1, self._width * self._levels))
        return tuple(encodings)

    def embed_input_ids(
        self, input_ids: torch.Tensor, encodings: Any = None, *, is_multimodal: torch.Tensor
    ) -> torch.Tensor:
        embeddings = -input_ids[:, None].float().expand(-1, self._width).clone()
        if encodings:
            parts = torch.cat(encodings)
            assert parts.shape[1] == self._width * self._levels
            embeddings[is_multimodal] = parts[:, : self._width]
        return embeddings


class Senior(nn.Module):
    """A composite model, of whose class the senior's members are functions of an instance."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self._senior = SimpleNamespace(
            embed_multimodal=lambda model, **inputs: tower.embed_multimodal(**inputs),
            embed_input_ids=lambda model, *inputs, **options: tower.embed_input_ids(
                *inputs, **options
            ),
        )


def made(junior: Tower | None = None, levels: int = LEVELS) -> tuple[Senior, Images]:
    model = Senior(Tower(10, SENIOR_WIDTH, levels))
    model_images = Images(model, junior or Tower(100, JUNIOR_WIDTH, levels), ROWS, torch.float32)
    object.__setattr__(model, "tandem_images", model_images)
    return model, model_images


PIXELS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([7.0])]


@pytest.mark.parametrize("levels", [1, LEVELS])
def test_each_model_merges_its_own_half_of_what_vllm_cached(levels: int) -> None:
    model, _ = made(levels=levels)
    encodings = images._embed_multimodal(model, pixels=PIXELS)
    assert [tuple(one.shape) for one in encodings] == [(3, 7 * levels), (1, 7 * levels)]
    ids = torch.arange(5)
    shown = torch.tensor([False, True, True, False, True])
    # A step that begins within the first image, as chunked prefill cuts it.
    slices = [encodings[0][1:3], encodings[1]]
    merged = images._embed_input_ids(model, ids, slices, is_multimodal=shown)
    assert merged[:, 0].tolist() == [0, 20, 30, -3, 70]
    assert merged.shape == (5, SENIOR_WIDTH)
    of_junior = model.tandem_images.juniors_embeddings(5)
    assert of_junior[:, 0].tolist() == [0, 200, 300, -3, 700]
    assert of_junior.shape == (5, JUNIOR_WIDTH)


def test_steps_of_text_are_embedded_by_both_models() -> None:
    model, model_images = made()
    ids, shown = torch.arange(3), torch.zeros(3, dtype=torch.bool)
    merged = images._embed_input_ids(model, ids, None, is_multimodal=shown)
    assert merged[:, 0].tolist() == model_images.juniors_embeddings(3)[:, 0].tolist() == [0, -1, -2]


def test_the_juniors_embeddings_stay_at_one_address() -> None:
    """A captured CUDA graph reads them there, padded to its size."""
    model, model_images = made()
    shown = torch.zeros(2, dtype=torch.bool)
    images._embed_input_ids(model, torch.tensor([5, 6]), None, is_multimodal=shown)
    first = model_images.juniors_embeddings(4)
    images._embed_input_ids(model, torch.tensor([8, 9]), None, is_multimodal=shown)
    assert model_images.juniors_embeddings(ROWS).data_ptr() == first.data_ptr()
    assert first[:2, 0].tolist() == [-8, -9]
    assert "tandem_juniors_embeddings" in dict(model.named_buffers())
    assert "tandem_juniors_embeddings" not in model.state_dict()


def test_towers_that_give_an_image_other_numbers_of_tokens_are_refused() -> None:
    model, _ = made(Tower(100, JUNIOR_WIDTH, tokens=1))
    with refused("image-lengths-differ", senior=3, junior=4):
        images._embed_multimodal(model, pixels=PIXELS)


def test_a_step_runs_the_junior_over_its_own_embeddings() -> None:
    model, _ = made()
    ran: list[Any] = []
    model.__dict__["junior"] = lambda *inputs, **options: ran.append((inputs, options))
    embeddings, positions = torch.zeros(6, SENIOR_WIDTH), torch.arange(6)
    senior._junior_pass(model, None, positions, embeddings)()
    (inputs, options) = ran[0]
    assert inputs[0] is None
    assert inputs[1] is positions
    assert options["inputs_embeds"].shape == (6, JUNIOR_WIDTH)
    senior._junior_pass(model, torch.arange(6), positions, None)()
    assert ran[1][1] == {}


def test_classes_of_text_get_no_members() -> None:
    assert members(type("Text", (), {})) == {}
    seeing = members(type("Seeing", (), {"supports_multimodal": True}))
    assert set(seeing) == {"embed_multimodal", "embed_input_ids"}


def test_engines_of_text_have_no_images() -> None:
    config = SimpleNamespace(additional_config={"tandem": {}})
    assert images_of(None, None, config) is None
    model, ids = Senior(Tower(10, SENIOR_WIDTH)), torch.arange(3)
    shown = torch.zeros(3, dtype=torch.bool)
    embeddings = images._embed_input_ids(model, ids, is_multimodal=shown)
    assert embeddings[:, 0].tolist() == [0, -1, -2]


def engine_arguments(**given: Any) -> Any:
    names = {"limit_mm_per_prompt": None, "allowed_media_domains": None, "load_format": "auto"}
    return SimpleNamespace(mm_device_do_normalize=True, **(names | given))


@pytest.mark.parametrize(("load_format", "by_model"), [("auto", True), ("dummy", False)])
def test_no_dummy_weight_normalises_pixels(load_format: str, by_model: bool) -> None:
    args = engine_arguments(load_format=load_format)
    limit_to_images(args)
    assert args.mm_device_do_normalize is by_model


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (None, {"video": 0}),
        ({"image": 4}, {"video": 0, "image": 4}),
        ({"video": 2}, {"video": 2}),  # for the engine's table to reject
    ],
)
def test_videos_are_not_admitted_unless_asked_for(limits: Any, expected: Any) -> None:
    args = engine_arguments(limit_mm_per_prompt=limits)
    limit_to_images(args)
    assert args.limit_mm_per_prompt == expected


def test_no_address_is_fetched_unless_its_host_is_named() -> None:
    args = engine_arguments()
    limit_to_images(args)
    assert args.allowed_media_domains == ["none.invalid"]
    args.allowed_media_domains = ["example.org"]
    limit_to_images(args)
    assert args.allowed_media_domains == ["example.org"]
