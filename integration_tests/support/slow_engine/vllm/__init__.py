"""A stand-in for vLLM that answers by the request's seed alone, slowly: for tests of being killed.

It has the few names that ``tandem_plugin.lab.evaluation.engine_process`` uses for a senior alone.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

_STEP_S = 0.01


@dataclass
class SamplingParams:
    temperature: float
    top_p: float
    max_tokens: int
    seed: int


@dataclass
class _Output:
    request_id: str
    outputs: list[Any]
    finished: bool = True


class _Tokenizer:
    chat_template = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


@dataclass
class _Core:
    waiting: list[tuple[str, SamplingParams]] = field(default_factory=list)
    model_config: Any = field(default_factory=lambda: SimpleNamespace(max_model_len=4096))
    vllm_config: Any = field(
        default_factory=lambda: SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=3))
    )

    def step(self) -> list[_Output]:
        """One response: not the oldest one, so that the order is that of no plan."""
        time.sleep(_STEP_S)
        name, params = self.waiting.pop(len(self.waiting) // 2)
        drawn = random.Random(params.seed)
        ids = [drawn.randrange(50) for _ in range(drawn.randrange(1, params.max_tokens))]
        text = f"It is \\boxed{{{drawn.randrange(6)}}}."
        response = SimpleNamespace(text=text, finish_reason="stop", token_ids=ids)
        return [_Output(name, [response])]


class LLM:
    def __init__(self, model: str, **arguments: Any) -> None:
        self.llm_engine = _Core()
        self._count = 0

    def get_tokenizer(self) -> _Tokenizer:
        return _Tokenizer()

    def enqueue(self, prompts: list[Any], params: SamplingParams, **options: Any) -> list[str]:
        name, self._count = str(self._count), self._count + 1
        self.llm_engine.waiting.append((name, params))
        return [f"{name}-abc"]
