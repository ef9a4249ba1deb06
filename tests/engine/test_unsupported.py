"""What an engine with images rejects at startup, each by one changed value of a sound engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.engine.unsupported import IMAGE_FAMILIES, KINDS, engine_view, rows_of_images
from tandem_plugin.unsupported import check_supported

QWEN = "Qwen2_5_VLForConditionalGeneration"
PROCESSOR = {"image_mean": [0.5], "image_std": [0.5], "patch_size": 14, "processor_class": "A"}


def model(name: str, **changes: Any) -> Any:
    """A model's configuration, as vLLM has it. changes: by names with ``__`` for dots."""
    limits = {"video": 0}
    settings: dict[str, Any] = {
        "model": name,
        "architectures": [QWEN],
        "is_multimodal_model": True,
        "hf_image_processor_config": dict(PROCESSOR),
        "hf_config": SimpleNamespace(
            image_token_id=7,
            vision_config=SimpleNamespace(patch_size=14, spatial_merge_size=2),
        ),
        "multimodal_config": SimpleNamespace(get_limit_per_prompt=limits.get),
    }
    found = SimpleNamespace(**settings)
    for dotted, value in changes.items():
        *parts, last = dotted.split("__")
        place = found
        for part in parts:
            place = getattr(place, part)
        setattr(place, last, value)
    return found


def check(
    tandem: dict[str, Any] | None = None,
    senior: Any = None,
    junior: Any = None,
    config: Any = None,
    vllm: str = "0.29.0",
) -> None:
    settings = TandemConfig.from_mapping({"images": True} | (tandem or {}))
    models = senior or model("s"), junior or model("j")
    view = engine_view(lambda name: None, settings, vllm, *models, config)
    check_supported((*KINDS["senior"], *KINDS["junior"], *rows_of_images(settings)), view)


def test_two_models_of_a_compared_class_see_images() -> None:
    check()
    for family in IMAGE_FAMILIES:
        check(
            senior=model("s", architectures=[f"Tandem{family}"]),
            junior=model("j", architectures=[family]),
        )
    # Neither their names nor where their files came from have an effect on pixels.
    check(junior=model("j", hf_image_processor_config={**PROCESSOR, "processor_class": "B"}))


@pytest.mark.parametrize("place", ["senior", "junior"])
@pytest.mark.parametrize(
    "architecture", ["Gemma3ForConditionalGeneration", "Qwen3ForCausalLM", "Phi4MMForCausalLM"]
)
def test_families_that_were_not_compared_are_rejected(place: str, architecture: str) -> None:
    models: dict[str, Any] = {place: model("m", architectures=[architecture])}
    with refused("image-family-uncompared", model="m", architecture=architecture) as caught:
        check(**models)
    assert QWEN in str(caught.value)


def test_two_classes_are_rejected() -> None:
    other = "Qwen3VLForConditionalGeneration"
    with refused("image-classes-differ", senior=QWEN, junior=other):
        check(junior=model("j", architectures=[other]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image_token_id", 8),
        ("video_token_id", 9),
        ("vision_start_token_id", 3),
        ("vision_end_token_id", 3),
        ("scale_factor", 4),
        ("vision_config.image_size", 384),
        ("vision_config.in_channels", 1),
        ("vision_config.num_channels", 1),
        ("vision_config.patch_size", 16),
        ("vision_config.spatial_merge_size", 1),
        ("vision_config.temporal_patch_size", 1),
        ("vision_config.tokens_per_second", 2),
    ],
)
def test_models_that_lay_images_out_differently_are_rejected(name: str, value: Any) -> None:
    changed = model("j", **{f"hf_config__{name.replace('.', '__')}": value})
    with refused("image-layouts-differ", name=name, junior=value):
        check(junior=changed)
    check(senior=changed, junior=changed)


@pytest.mark.parametrize(
    ("processor", "names"),
    [
        ({**PROCESSOR, "image_mean": [0.4]}, "image_mean"),
        ({**PROCESSOR, "size": {"longest_edge": 99}}, "size"),
        ({}, "image_mean, image_std, patch_size"),
    ],
)
def test_processors_that_make_other_pixels_are_rejected(processor: Any, names: str) -> None:
    with refused("image-processors-differ", names=names):
        check(junior=model("j", hf_image_processor_config=processor))


@pytest.mark.parametrize(
    "name",
    [
        "compilation_config.cudagraph_mm_encoder",
        "compilation_config.compile_mm_encoder",
        "ec_transfer_config",
        "lora_config.enable_tower_connector_lora",
        "parallel_config.enable_dbo",
    ],
)
def test_settings_that_pass_by_the_juniors_tower_are_rejected(name: str) -> None:
    config: Any = True
    for part in reversed(name.split(".")):
        config = SimpleNamespace(**{part: config})
    with refused("image-setting-unsupported", name=name.rpartition(".")[2]):
        check(config=config)
    texts = model("s", is_multimodal_model=False), model("j", is_multimodal_model=False)
    check({"images": False}, *texts, config=config)


def test_adapters_of_the_language_model_go_with_images() -> None:
    check(config=SimpleNamespace(lora_config=SimpleNamespace(enable_tower_connector_lora=False)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_mm_embeds", True),
        ("language_model_only", True),
        ("mm_encoder_only", True),
        ("video_pruning_rate", 0.5),
    ],
)
def test_settings_of_inputs_that_change_encodings_are_rejected(name: str, value: Any) -> None:
    with refused("image-setting-unsupported", name=name):
        check(senior=model("s", **{f"multimodal_config__{name}": value}))


def test_quantised_junior_is_rejected_with_images() -> None:
    with refused("image-setting-unsupported", name="junior_quantization"):
        check({"junior_quantization": "fp8"})
    texts = model("s", is_multimodal_model=False), model("j", is_multimodal_model=False)
    check({"images": False, "junior_quantization": "fp8"}, *texts)


def test_videos_are_rejected() -> None:
    with refused("images-with-videos"):
        check(senior=model("s", multimodal_config__get_limit_per_prompt={"video": 2}.get))


def test_drafts_are_rejected_with_images() -> None:
    with refused("images-speculative-unsupported"):
        check({"mode": "speculative"})


def test_an_older_vllm_is_rejected() -> None:
    with refused("images-vllm-untested", version="0.28.0"):
        check(vllm="0.28.0")


def test_without_images_a_model_that_sees_is_rejected_as_before() -> None:
    with refused("multimodal-model-unsupported"):
        check({"images": False})
