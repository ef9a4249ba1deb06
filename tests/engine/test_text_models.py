"""What of a unified checkpoint's configuration its text model keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine.text_models import keep_text_config


class Config(SimpleNamespace):
    def update(self, settings: dict[str, Any]) -> None:
        vars(self).update(settings)


def model_of(architecture: str, nested: bool = True, **unified: Any) -> Any:
    rope = {"rope_type": "default", "mrope_section": [1, 2], "mrope_interleaved": True}
    text = Config(rope_parameters=rope, tie_word_embeddings=True)
    whole = Config(text_config=text, architectures=[architecture], **unified)
    config = whole if nested else text
    return SimpleNamespace(hf_config=config, hf_text_config=text, architecture=architecture)


@pytest.mark.parametrize("architecture", ["TandemQwen2ForCausalLM", "Gemma3ForCausalLM"])
def test_text_config_says_what_the_whole_config_says_of_it(architecture: str) -> None:
    whole = {
        "tie_word_embeddings": False,
        "quantization_config": {"bits": 4},
        "head_dtype": "float32",
    }
    model = keep_text_config(model_of(architecture, **whole))
    assert model.hf_config is model.hf_text_config
    assert model.hf_config.rope_parameters == {"rope_type": "default"}
    assert {name: getattr(model.hf_config, name) for name in whole} == whole
    assert model.hf_config.architectures == [architecture]


def test_config_of_a_model_without_rope_is_kept_as_well() -> None:
    model = model_of("Gemma3ForCausalLM")
    model.hf_text_config.rope_parameters = None
    assert keep_text_config(model).hf_config is model.hf_text_config
    assert model.hf_config.tie_word_embeddings is True
    assert not hasattr(model.hf_config, "head_dtype")


@pytest.mark.parametrize(
    ("architecture", "nested"), [("Gemma3ForCausalLM", False), ("Other", True)]
)
def test_other_configs_are_left_alone(architecture: str, nested: bool) -> None:
    model = model_of(architecture, nested)
    before = model.hf_config
    assert keep_text_config(model).hf_config is before
    assert "mrope_section" in model.hf_text_config.rope_parameters
