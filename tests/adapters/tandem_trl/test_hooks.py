"""The places in TRL that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import importlib
import inspect

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
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
    ("trl", "GRPOTrainer._generate", ["self", "prompts"]),
    (
        "trl",
        "GRPOTrainer._tool_call_loop",
        [
            *("self", "prompts", "prompt_ids", "completion_ids", "completions", "logprobs"),
            *("images", "multimodal_fields"),
        ],
    ),
    ("trl", "GRPOTrainer._compute_loss", ["self", "model", "inputs"]),
    ("trl.experimental.gmpo", "GMPOTrainer._compute_loss", ["self", "model", "inputs"]),
    (
        "trl.generation.vllm_generation",
        "VLLMClient.generate",
        [
            *("self", "prompts", "features", "n", "repetition_penalty", "temperature", "top_p"),
            *("top_k", "min_p", "max_tokens", "logprobs", "structured_outputs_regex"),
            "generation_kwargs",
        ],
    ),
    ("trl", "GRPOTrainer.compute_loss", ["self", "model", "inputs"]),
    *(
        (
            "trl",
            f"{trainer}._calculate_rewards",
            ["self", "inputs", "prompts", "completions", "completion_ids_list"],
        )
        for trainer in ("GRPOTrainer", "RLOOTrainer")
    ),
    *(
        ("trl", f"{trainer}.log", ["self", "logs", "start_time"])
        for trainer in ("GRPOTrainer", "RLOOTrainer")
    ),
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
        'self._metrics[mode]["reward"].append(',
        "for key, val in self._metrics[mode].items()",
        'extra_fields.pop("env_mask", None)',
        'completion_mask * inputs["tool_mask"]',
        'self._logs["rewards"][name].extend(',
        'self._metrics[mode]["reward"].append(',
        "self.vllm_generation.sync_weights()",
        "prompt_ids[idx_with_tool] + completion_ids[idx_with_tool] + suffix_ids",
        "return tool_mask, completions, completion_ids, logprobs, tool_call_count,",
        "_, completion_ids, logprobs, _ = self.vllm_generation.generate(",
        "if self.tools:",
        "eos_and_pad = [*self.eos_token_ids, self._tokenizer.pad_token_id]",
    ):
        assert text in trainer, text
    generation = inspect.getsource(importlib.import_module("trl.generation.vllm_generation"))
    for text in (
        "self.llm = LLM(",
        "self.vllm_client = VLLMClient(",
        "ordered_set_of_prompt_ids = all_prompts[::num_generations]",
        "return prompt_ids, completion_ids, logprobs, logprob_token_ids",
    ):
        assert text in generation, text
    assert "in self._iter_named_params():" in generation
    assert "self.llm.generate(vllm_prompts, sampling_params=sampling_params" in generation
