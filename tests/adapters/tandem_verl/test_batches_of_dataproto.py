"""The worker on ``DataProto``, on which verl's trainers without TransferQueue run.

verl's real base worker, its client that resumes responses which a weight sync aborted, its
assembly of batches and its removal of padding; an engine of random tokens below them.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from refused import refused
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop import agent_loop
from verl.experimental.fully_async_policy import detach_utils
from verl.workers.rollout import llm_server
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.padding import left_right_2_no_padding

from tandem_plugin import TandemConfig, TandemRequest, TandemRules, Vocabulary
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship
from tandem_plugin.training.checks import AdmittedBatch, check_rows
from tandem_plugin.training.rows import Row
from tandem_verl.rollouts import ROW, WorkerInTandem

PIECES = ("Ġa", "Ġb", "Ġc", "Ġd", "x", "y", "z", ".", "Ċ", "Ġthe", "ing", "Ġ1", "2", "<t>", "</t>", "q")  # fmt: skip  # noqa: E501
RULES = TandemRules(TandemConfig.from_mapping({"schedule": "word"}), Vocabulary(PIECES, "tiny"))
PROMPTS, SAMPLES, LENGTH = 20, 4, 40
CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "response_length": LENGTH,
                "n": SAMPLES,
                "name": "vllm",
                "multi_turn": {"enable": True},
                "engine_kwargs": {"vllm": {"additional_config": {"tandem": {"schedule": "word"}}}},
            }
        },
        "algorithm": {},
        "data": {},
        "async_training": {"partial_rollout": True},
    }
)


class ToolLoop(agent_loop.AgentLoopBase):  # type: ignore[misc]
    """Some responses go on after a tool's output."""

    def __init__(self, server_manager: Any = None, **_: Any) -> None:
        self.server, self.random = server_manager, RANDOM

    async def run(self, sampling_params: dict[str, Any], **_: Any) -> Any:
        prompt = list(range(self.random.randint(1, 5)))
        first = await self._call(prompt, sampling_params)
        tokens, mask, log_probs = list(first.token_ids), [1] * len(first.token_ids), []
        log_probs += first.log_probs
        if self.random.random() < 0.5:
            tokens, mask, log_probs = [*tokens, 13, 7], [*mask, 0, 0], [*log_probs, 0.0, 0.0]
            second = await self._call([*prompt, *tokens], sampling_params)
            tokens += second.token_ids
            mask += [1] * len(second.token_ids)
            log_probs += second.log_probs
        if not tokens:
            tokens, mask, log_probs = [13], [0], [0.0]
        return agent_loop.AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=tokens[:LENGTH],
            response_mask=mask[:LENGTH],
            response_logprobs=log_probs[:LENGTH],
            reward_score=self.random.random(),
            num_turns=2,
            metrics=agent_loop.AgentLoopMetrics(),
            extra_fields={**first.extra_fields, "turn_scores": [], "tool_rewards": []},
        )

    async def _call(self, prompt: list[int], sampling_params: dict[str, Any]) -> Any:
        return await self.server.generate(
            request_id="id", prompt_ids=prompt, sampling_params=sampling_params
        )


RANDOM = random.Random(0)


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each call of the engine, whether it resumes a response. Every second one is aborted."""
    calls: list[bool] = []

    async def generate(
        self: Any, request_id: str, *, prompt_ids: Any, sampling_params: Any, **_: Any
    ) -> Any:
        request = TandemRequest.parse(sampling_params["extra_args"]["tandem"])
        assert request is not None
        assert request.prompt_length is not None
        calls.append(len(prompt_ids) > request.prompt_length)
        count = min(RANDOM.randint(0, 9), sampling_params.get("max_tokens", 99))
        return TokenOutput(
            token_ids=[RANDOM.randrange(len(PIECES)) for _ in range(count)],
            log_probs=[-1.0] * count,
            num_preempted=0,
            stop_reason=RANDOM.choice(["aborted", "completed"]),
            extra_fields={"global_steps": len(calls)},
        )

    async def at_once(*_: Any) -> None: ...

    waiting = SimpleNamespace(sleep=at_once, gather=asyncio.gather)
    monkeypatch.setattr(llm_server, "asyncio", waiting)
    monkeypatch.setattr(llm_server.LLMServerClient, "generate", generate)
    monkeypatch.setattr(
        agent_loop.hydra.utils, "instantiate", lambda config, **given: ToolLoop(**given)
    )
    monkeypatch.setitem(agent_loop._agent_loop_registry, "tools", {"_target_": "tools"})
    monkeypatch.setattr(agent_loop.RolloutTraceConfig, "_instance", None)
    return calls


def worker() -> Any:
    made = object.__new__(WorkerInTandem.tandem_over(agent_loop.AgentLoopWorker))
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    made.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="q")),
        pad_token="x",
        eos_token="</t>",
    )
    made.config, made._tandem_rules = CONFIG, RULES
    made.processor = made.hf_model_type = made.dataset_cls = made.reward_loop_worker_handles = None
    made.tools, made.distillation_enabled, made.mm_processor_kwargs = [], False, {}
    made.rollout_config = OmegaConf.create(
        {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "calculate_log_probs": True,
            "val_kwargs": {},
            "agent": {"default_agent_loop": "tools"},
            "prompt_length": 8,
            "response_length": LENGTH,
        }
    )
    made.llm_client = llm_server.FullyAsyncLLMServerClient(CONFIG)
    return made


def generated(made: Any) -> Any:
    """A batch that verl assembled from samples of several prompts, in another order."""
    samples = []
    for number in range(PROMPTS):
        prompt = {
            "raw_prompt": np.array([[{"role": "user", "content": "?"}]], dtype=object),
            "index": np.array([0]),  # of every prompt
            "dummy": torch.zeros(1, 1),
        }
        given = detach_utils.prepare_single_generation_data(prompt, CONFIG)
        columns = given.non_tensor_batch
        columns["agent_name"] = np.array(["tools"] * SAMPLES, dtype=object)
        columns["uid"] = np.array([f"uid_{number}"] * SAMPLES, dtype=object)
        columns[ROW] = np.array([number] * SAMPLES)  # these two are a manager's of ours
        given.meta_info["global_steps"] = 1
        out = asyncio.run(made.generate_sequences(given))
        out.non_tensor_batch["uid"] = columns["uid"]
        samples.append(detach_utils.RolloutSample(out, f"sample_0_{number}", 0, {}))
    order = torch.randperm(PROMPTS * SAMPLES, generator=torch.Generator().manual_seed(1))
    return detach_utils.assemble_batch_from_rollout_samples(
        samples, made.tokenizer, CONFIG, lambda batch, metrics: batch.reorder(order)
    )


def rows(batch: Any) -> list[Row]:
    width = batch.batch["responses"].shape[1]
    lengths = batch.batch["attention_mask"][:, -width:].sum(1).tolist()
    found = []
    for number, length in enumerate(lengths):
        facts = ResponseAuthorship.from_wire(batch.non_tensor_batch[AUTHORSHIP][number])
        assert facts is not None
        uid = batch.non_tensor_batch["uid"][number]
        found.append(
            Row(
                facts=facts,
                name=f"Row {uid} {facts.seed}",
                group=uid,
                response_ids=batch.batch["responses"][number, :length].numpy(),
                response_mask=batch.batch["response_mask"][number, :length].numpy().astype(bool),
            )
        )
    return found


def test_batches_are_admitted_and_a_flipped_bit_is_refused(resumed: list[bool]) -> None:
    batch = generated(worker())
    found = rows(batch)
    assert len(found) == PROMPTS * SAMPLES
    assert sum(resumed) > PROMPTS
    check_rows(found, RULES)
    admitted = AdmittedBatch(found)
    admitted.check(rows(batch), rejects=False)
    keys = ("input_ids", "attention_mask", "response_mask", "position_ids", "responses", "prompts")
    unpadded = left_right_2_no_padding(batch.select(batch_keys=list(keys)).to_tensordict())
    mask = batch.batch["response_mask"]
    assert torch.equal(unpadded["loss_mask"], mask)
    assert not batch.batch["rollout_log_probs"][mask == 0].any()
    assert 0 < mask.sum() < batch.batch["attention_mask"].sum()
    mask[0, 0] ^= 1
    with refused("mask-changed-after-check"):
        admitted.check(rows(batch), rejects=False)
