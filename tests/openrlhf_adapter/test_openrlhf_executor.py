"""What stands before a user's agent executor."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_openrlhf.trajectory import TandemExecutor
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.authorship_wire import FACTS
from tandem_plugin.training.trajectory import Numbering

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
PROMPT = [1, 2, 3]


class UsersExecutor:
    """An agent of one call, which changes the parameters that it is given."""

    name = "the user's"

    async def execute(
        self, prompt: Any, label: Any, sampling_params: Any, llm_engine: Any, **_: Any
    ) -> dict[str, Any]:
        assert label == "the answer"
        sampling_params.max_tokens = 3
        assert llm_engine.llm == "the engine's own"
        output = await llm_engine.generate(PROMPT, sampling_params)
        response = output.outputs[0].token_ids
        return {
            "prompt": prompt,
            "observation_tokens": PROMPT + response,
            "action_ranges": [(3, 3 + len(response))],
            "rollout_log_probs": None,
        }


class Engine:
    llm = "the engine's own"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        self.asked.append(copy.deepcopy(params))
        response = np.random.default_rng(len(self.asked)).integers(0, 24, 20).tolist()
        return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=response)])


def executor() -> TandemExecutor:
    """That of an engine which runs in tandem."""
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 4, "seed": 9})
    made = TandemExecutor(UsersExecutor(), config)
    made._rules = TandemRules(config, Vocabulary(PIECES, "a test"))
    return made


def asked(made: TandemExecutor, engine: Any, label: Any, params: Any) -> Any:
    return made.execute(
        prompt="p",
        label=label,
        sampling_params=params,
        hf_tokenizer=None,
        llm_engine=engine,
        images=None,
    )


def test_every_sample_of_a_prompt_is_a_trajectory_of_its_own() -> None:
    made, engine = executor(), Engine()
    (label,) = Numbering(next_prompt=5).keyed(["the answer"])
    shared = SimpleNamespace(extra_args={"other": 1}, max_tokens=8)

    async def both() -> Any:
        return await asyncio.gather(*(asked(made, engine, label, shared) for _ in range(2)))

    responses = asyncio.run(both())
    assert shared == SimpleNamespace(extra_args={"other": 1}, max_tokens=8)
    seeds = [derive_seed(9, "training", 5, sample, 0) for sample in range(2)]
    for response, params, seed in zip(responses, engine.asked, seeds, strict=True):
        assert params.extra_args["other"] == 1
        assert params.extra_args["tandem"]["seed"] == seed
        assert params.extra_args.keys() == {"other", "tandem"}
        senior = made._rules.default.replay(response["observation_tokens"][3:], seed)  # type: ignore[union-attr]
        bits = np.zeros(23, dtype=int)
        for start, stop in response["action_ranges"]:
            bits[start:stop] = 1
        assert bits[3:].tolist() == senior.tolist()
        assert response[FACTS]["segments"] == ((seed, 3, 23),)
    assert made.name == "the user's"


def test_engine_without_tandem_is_refused_before_it_is_asked() -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    config = TandemConfig.from_mapping({"schedule": "word"})
    plain = SimpleNamespace(model_config=SimpleNamespace(architectures=["Qwen3ForCausalLM"]))
    engine = SimpleNamespace(llm=SimpleNamespace(vllm_config=plain))
    with refused("TP363"):
        asyncio.run(asked(TandemExecutor(UsersExecutor(), config), engine, "", None))
