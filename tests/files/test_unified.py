"""What of a unified checkpoint is its text model's."""

from __future__ import annotations

import pytest

from tandem_plugin.files.unified import TEXT_CLASSES, VISION_PREFIXES, text_config, text_weight


def test_weights_get_the_names_of_a_text_model_and_vision_weights_are_dropped() -> None:
    names = {
        "model.language_model.layers.0.w": "model.layers.0.w",
        "language_model.model.norm.weight": "model.norm.weight",
        "language_model.lm_head.weight": "lm_head.weight",
        "model.layers.1.w": "model.layers.1.w",
        "lm_head.weight": "lm_head.weight",
    }
    assert {name: text_weight(name) for name in names} == names
    assert {text_weight(f"{prefix}w") for prefix in VISION_PREFIXES} == {None}


@pytest.mark.parametrize("architecture", TEXT_CLASSES)
def test_config_of_a_checkpoint_is_nested_or_flat(architecture: str) -> None:
    nested = {"architectures": [architecture], "text_config": {"hidden_size": 4}}
    assert text_config(nested) == {"hidden_size": 4}
    flat = {"architectures": [architecture], "hidden_size": 4}  # as Qwen2.5-VL's is
    assert text_config(flat) == flat
