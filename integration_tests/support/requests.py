"""Requests to an engine of vLLM's ``LLM``, and the tokens that come of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PROMPTS = ["import numpy\n", "class Foo(object):\n    def", "return x of the tokens"]


def generate(
    engine: Any,
    prompts: Sequence[list[int]],
    tandem: Sequence[Any],
    *,
    adapters: Sequence[Any] | None = None,
    **sampling: Any,
) -> list[list[int]]:
    """The tokens of each prompt's response.

    tandem: what each asks for, None for nothing. adapters: the LoRA request of each.
    """
    from vllm import SamplingParams

    params = [
        SamplingParams(**sampling, extra_args=None if one is None else {"tandem": one})
        for one in tandem
    ]
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    options = {} if adapters is None else {"lora_request": list(adapters)}
    outputs = engine.generate(asked, params, use_tqdm=False, **options)
    return [list(output.outputs[0].token_ids) for output in outputs]


def greedy(
    engine: Any, prompts: Sequence[list[int]], tandem: Sequence[Any], length: int, **options: Any
) -> list[list[int]]:
    """The same at temperature 0, each response of this length."""
    sampling = {"temperature": 0, "max_tokens": length, "ignore_eos": True}
    return generate(engine, prompts, tandem, **sampling, **options)
