"""The places in TRL that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import importlib
import inspect

import pytest

pytest.importorskip("trl", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")


HOOKS = [
    ("trl.generation.vllm_generation", "VLLMGeneration._init_vllm", ["self"]),
    ("trl.generation.vllm_generation", "VLLMGeneration.sync_weights", ["self"]),
    ("trl.generation.vllm_generation", "VLLMGeneration._iter_named_params", ["self"]),
    (
        "trl.scripts.utils",
        "TrlParser.parse_args_and_config",
        [
            *("self", "args", "return_remaining_strings", "fail_with_unknown_args"),
            "separate_remaining_strings",
        ],
    ),
    (
        "trl.generation.vllm_generation",
        "VLLMGeneration.generate",
        ["self", "prompts", "images", "num_generations", "profiler"],
    ),
    ("trl", "GRPOTrainer._tokenize_prompts", ["self", "prompts"]),
    ("trl", "GRPOTrainer.compute_loss", ["self", "model", "inputs"]),
    ("trl.scripts.grpo", "main", ["script_args", "training_args", "model_args", "dataset_args"]),
]


@pytest.mark.parametrize(("module", "name", "parameters"), HOOKS)
def test_hook_is_where_the_adapter_expects_it(
    module: str, name: str, parameters: list[str]
) -> None:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert list(inspect.signature(found).parameters)[: len(parameters)] == parameters


def test_what_the_adapter_reads_of_trl_is_there() -> None:
    trainer = inspect.getsource(importlib.import_module("trl.trainer.grpo_trainer"))
    for text in (
        'extra_fields.pop("env_mask", None)',
        'completion_mask * inputs["tool_mask"]',
        'self._logs["rewards"][name].extend(',
        'self._metrics[mode]["reward"].append(',
        "self.vllm_generation.sync_weights()",
        "eos_and_pad = [*self.eos_token_ids, self._tokenizer.pad_token_id]",
    ):
        assert text in trainer, text
    generation = inspect.getsource(importlib.import_module("trl.generation.vllm_generation"))
    assert "self.llm = LLM(" in generation
    assert "in self._iter_named_params():" in generation
    assert "self.llm.generate(vllm_prompts, sampling_params=sampling_params" in generation
