"""The worker of TRL's asynchronous trainer, held to the duties of an adapter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("aiohttp", reason="aiohttp is not installed")

from held_to_the_duties import FEEDBACK, MODEL, PROMPTS, SAMPLES, SETTINGS, HeldToTheDuties, Written
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    RolloutSample,
    TurnRecord,
    _AsyncRolloutLoop,
    _chain_to_sequences,
)
from trl_trainer import word_tokenizer

from tandem_plugin.training.server import VLLMServer
from tandem_trl.async_rollouts import TandemLoop, TandemRolloutWorker

NO_VALIDATION = "the trainer has no validation"


class Plain:
    """TRL's loop of two turns, without a server."""

    def __init__(self, *, driver: TestAsyncGRPOTrainer, **_: Any) -> None:
        self.driver, self.tokenizer = driver, None

    async def _generate_one(self, prompt: Any, tools: Any, _: Any, group: int = 0) -> Any:
        turns, ids = [], list(prompt)
        for feedback in (FEEDBACK, []):
            tokens, log_probs = await self._generate_one_turn(ids)
            turns.append(TurnRecord(list(ids), tokens, log_probs))
            ids = [*ids, *tokens, *feedback]
        sequences, _ = _chain_to_sequences(turns, "a rollout", 1024)
        return [], [], sequences, 0, 0, None

    async def _generate_one_turn(self, prompt_ids: Any) -> Any:
        answer = await self._post("/v1/completions", {"prompt": prompt_ids}, 1.0)
        return answer, [-1.0] * len(answer)

    async def _post(self, path: str, body: Any, timeout: float, max_retries: int = 3) -> Any:
        extra = {name: json.loads(text) for name, text in body["vllm_xargs"].items()}
        return self.driver.engine.answer(body["prompt"], extra)

    async def _score_group(self, group: Any) -> list[Any]:
        return [
            RolloutSample(
                [],
                [],
                np.array(sequence.input_ids),
                np.array(sequence.completion_mask),
                np.array(sequence.old_log_probs, np.float32),
                1.0,
                self.model_version,
                group.number,
                {"reward": 0.5},
            )
            for (sequence,) in group.completions_sequences
        ]


class TestAsyncGRPOTrainer(HeldToTheDuties):
    foreign_part = "trl-worker-without-callback"
    absent: ClassVar[Mapping[str, str]] = {
        "imitate": "lambda_jun is rejected at the start",
        "engine_in_tandem": "the user starts the server",
        **dict.fromkeys(
            (
                *("validate", "validate_both", "validate_all", "validation_is_checked"),
                *("validation_is_not_measured", "fall_of_the_senior_alone_is_reported"),
            ),
            NO_VALIDATION,
        ),
    }
    extra: ClassVar[Mapping[str, Any]] = {}

    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        self.step = self.first = step
        settings = {**SETTINGS, **tandem}
        for name in ("__init__", "_generate_one", "_generate_one_turn", "_post", "_score_group"):
            self.patched.setattr(_AsyncRolloutLoop, name, getattr(Plain, name))
        version = property(lambda loop: loop.driver.step)
        self.patched.setattr(_AsyncRolloutLoop, "model_version", version)
        self.patched.setattr(
            VLLMServer, "collective_rpc", lambda _, method: [self.engine.counters(method)]
        )
        self.args = AsyncGRPOConfig(output_dir=str(self.folder), use_cpu=True, bf16=False)
        self.worker = TandemRolloutWorker(
            self.args,
            tandem=settings,
            model_name=model,
            processing_class=word_tokenizer(),
            dataset=None,
            reward_funcs=[],
        )
        self.callback = self.worker.callback()
        self.loop = TandemLoop(
            tandem=settings, dataset_start_index=(step - 1) * PROMPTS, driver=self
        )
        self.worker.update_model_version(step)

    def generate(self) -> list[Written]:
        async def groups() -> list[Any]:
            scored = []
            for number in range(PROMPTS):
                group = (self.step - self.first) * PROMPTS + number
                prompt = [1, 2, number]
                every = [self.loop._generate_one(prompt, {}, [], group) for _ in range(SAMPLES)]
                rows = [sequences for _, _, sequences, *_ in await asyncio.gather(*every)]
                made = SimpleNamespace(completions_sequences=rows, number=group, reward_kwargs={})
                scored += await self.loop._score_group(made)
            return scored

        self.samples = asyncio.run(groups())
        columns = ("input_ids", "completion_mask", "old_log_probs")
        written = []
        for sample in self.samples:
            ids, mask, log_probs = (getattr(sample, name).tolist() for name in columns)
            assert mask[:3] == log_probs[:3] == [0, 0, 0]
            written.append(Written(ids[:3], ids[3:], mask[3:], log_probs[3:]))
        return written

    def admit(self) -> None:
        self.taken = []
        for sample in self.samples:
            self.worker.own_queue.put(sample)
            self.taken.append(self.worker.rollout_buffer.get(timeout=120))

    def update(self, *, is_changed: bool = False) -> None:
        self.worker._process = SimpleNamespace(exitcode=None)
        self.step += 1
        self.worker.update_model_version(self.step)
        self.worker._process = None

    def test_update(self) -> None:
        """TRL takes the very arrays that were checked: none can change."""
        self.begin()
        self.generate()
        self.admit()
        for sample in self.taken:
            for array in (sample.input_ids, sample.completion_mask, sample.old_log_probs):
                assert not array.flags.writeable

    def metrics(self) -> Mapping[str, Any]:
        logged: dict[str, Any] = {}
        shares = []
        for _ in range(len(self.samples) + 1):
            metrics = self.worker.metrics_queue.get(timeout=120)
            shares += (
                [metrics.pop("tandem/senior_share")] if "tandem/senior_share" in metrics else []
            )
            logged |= metrics
        written = sum(weight for _, weight in shares)
        return {**logged, "tandem/senior_share": sum(total for total, _ in shares) / written}

    def dumped(self) -> list[Mapping[str, Any]]:
        lines = (self.folder / "rollouts" / "1.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def validate(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def update_without_term(self) -> None:
        raise NotImplementedError

    def on_train_begin(self, step: int) -> Any:
        """The state with which TRL begins, after a step."""
        state = SimpleNamespace(global_step=step, stateful_callbacks={}, is_world_process_zero=True)
        self.callback.on_train_begin(self.args, state, None)
        return state

    def save(self) -> list[Path]:
        state = self.on_train_begin(0)
        state.global_step = 1
        self.callback.on_save(self.args, state, None)
        self.callback.on_train_end(self.args, state, None)
        return [self.folder / "checkpoint-1", self.folder]

    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        self.begin(2, model, **tandem)
        self.on_train_begin(1)

    def engine_settings(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def meet_foreign_part(self) -> None:
        self.begin()
        self.patched.setattr(VLLMServer, "send", lambda *_: (200, "{}"))
        self.patched.setattr(AsyncRolloutWorker, "start", lambda _: None)
        self.worker.start()

    def meet_plain_engine(self) -> None:
        self.begin()
        self.on_train_begin(0)
        self.patched.setattr(VLLMServer, "send", lambda *_: (200, "{}"))
        self.patched.setattr(AsyncRolloutWorker, "start", lambda _: None)
        self.worker.start()
