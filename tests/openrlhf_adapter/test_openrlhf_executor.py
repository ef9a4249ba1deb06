"""What stands before a user's agent executor, and what is put in the place of foreign classes."""

from __future__ import annotations

import asyncio
import copy
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_openrlhf.patches.training import MaskedTrainer
from tandem_openrlhf.trajectory import TandemExecutor
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.patching.subclasses import in_place_of
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.authorship_wire import FACTS
from tandem_plugin.training.numbered_prompts import Numbering

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


class TheirTrainer:
    """As OpenRLHF's, of a loss that is the mask's sum."""

    def __init__(self, strategy: Any, vllm_engines: Any = None) -> None:
        self.vllm_engines = vllm_engines

    def training_step(self, experience: Any, kl_ctl: float, step: int, info: Any) -> Any:
        tokens = experience.action_mask.sum()
        loss = tokens / info["batch_num_tokens"] * info["dp_size"] / info["global_batch_size"]
        return {"metrics": {"policy_loss": loss}, "num_action_tokens": float(tokens)}


def trainer() -> Any:
    module: Any = SimpleNamespace(ActorPPOTrainer=TheirTrainer)
    for _ in range(2):
        in_place_of("ActorPPOTrainer", MaskedTrainer)(module)
    assert module.ActorPPOTrainer.__bases__ == (MaskedTrainer, TheirTrainer)  # put in place once
    assert module.ActorPPOTrainer.__qualname__ == "TheirTrainer"
    return module.ActorPPOTrainer


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a stand-in for Ray was asked to wait for."""
    waited: list[Any] = []
    ray = SimpleNamespace(get=lambda references: waited.extend(references))
    monkeypatch.setitem(sys.modules, "ray", ray)
    return waited


def stepped(mask: list[int], tokens: float, rows: float) -> Any:
    info = {"dp_size": 2, "batch_num_tokens": tokens, "global_batch_size": rows}
    experience = SimpleNamespace(action_mask=np.array([mask]))
    return trainer()("strategy").training_step(experience, 0.0, 0, info)


@pytest.mark.usefixtures("asked_for")
def test_step_without_a_trained_token_loses_nothing_and_divides_by_nothing() -> None:
    status = stepped([0, 0], 0.0, 0.0)
    assert status["metrics"]["policy_loss"] == 0
    assert 0 < status["num_action_tokens"] < 1e-20
    status = stepped([1, 1], 4.0, 2.0)
    assert status["metrics"]["policy_loss"] == 2 / 4.0 * 2 / 2.0
    assert status["num_action_tokens"] == 2


def test_trainer_meets_its_engines_before_it_opens_the_group_for_weights(
    asked_for: list[Any],
) -> None:
    engine = SimpleNamespace(get_num_unfinished_requests=SimpleNamespace(remote=lambda: "alive"))
    assert trainer()("strategy", vllm_engines=[engine]).vllm_engines == [engine]
    assert asked_for == ["alive"]
