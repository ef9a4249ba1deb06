"""SkyRL's generator and trainer, held to the duties of an adapter: environments of two turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed")

from held_to_the_duties import FEEDBACK, MODEL, PROMPTS, SAMPLES, SETTINGS, HeldToTheDuties, Written
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
from skyrl.train.generators.base import BatchMetadata, TrajectoryID

from tandem_plugin import TandemConfig
from tandem_plugin.training.server import VLLMServer
from tandem_skyrl.experiment import TandemExp
from tandem_skyrl.settings import put_settings

COLUMNS = ("prompt_token_ids", "response_ids", "loss_masks", "rewards")
TOKENIZER = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))


class Loops:
    """As SkyRL's generator: an agent loop for each prompt."""

    def __init__(self, inference_engine_client: Any, **_: Any) -> None:
        self.inference_engine_client = inference_engine_client

    async def generate(self, input_batch: Any) -> Any:
        loops = [
            self.agent_loop(prompt, trajectory_id=name)
            for prompt, name in zip(
                input_batch["prompts"], input_batch["trajectory_ids"], strict=True
            )
        ]
        written = await asyncio.gather(*loops)
        output = dict(zip(COLUMNS, map(list, zip(*written, strict=True)), strict=True))
        log_probs = [[-1.0] * len(response) for response in output["response_ids"]]
        return {**output, "rollout_logprobs": log_probs}

    async def generate_batched(self, *arguments: Any) -> Any:
        raise AssertionError("no call is batched here")

    async def agent_loop(self, prompt: list[int], trajectory_id: Any = None) -> Any:
        response: list[int] = []
        mask: list[int] = []
        for feedback in (FEEDBACK, []):
            sampling = {"top_p": 1.0, "extra_args": {"mine": 1}}
            answer = await self.inference_engine_client.generate(
                {"prompt_token_ids": [prompt + response], "sampling_params": sampling}
            )
            assert sampling == {"top_p": 1.0, "extra_args": {"mine": 1}}
            (tokens,) = answer["response_ids"]
            response += [*tokens, *feedback]
            mask += [1] * len(tokens) + [0] * len(feedback)
        rewards = [0.0] * (len(response) - 1) + [float(trajectory_id.repetition_id)]
        return prompt, response, mask, rewards


class Trainer:
    """As SkyRL's trainer, without models."""

    def __init__(self, cfg: Any, driver: TestSkyRL) -> None:
        self.cfg, self.driver, self.tokenizer = cfg, driver, TOKENIZER
        self.all_metrics: dict[str, Any] = {}
        self.eval_dataset = range(PROMPTS)
        self.global_step, self.epoch = driver.step, 0

    def save_checkpoints(self) -> str:
        return str(self.driver.folder / "checkpoint")

    def save_models(self) -> None: ...

    def load_checkpoints(self) -> tuple[int, str]:
        return 2, str(self.driver.folder / "checkpoint")

    async def eval(self, vllm_metrics_scraper: Any = None) -> dict[str, float]:
        await self.driver.generated("eval", 1)
        return {"eval/all/avg_score": self.driver.accuracy}

    def convert_to_training_input(self, *_: Any) -> None: ...

    def compute_advantages_and_returns(self, data: Any) -> Any: ...

    def train_critic_and_policy(self, data: Any) -> None: ...


class TestSkyRL(HeldToTheDuties):
    foreign_part = "skyrl-trainer-not-in-tandem"
    absent: ClassVar[Mapping[str, str]] = {"imitate": "lambda_jun is rejected at the start"}

    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        self.patched.setattr(VLLMServer, "check", lambda *_: None)
        self.patched.setattr(
            VLLMServer, "collective_rpc", lambda _, method: [self.engine.counters(method)]
        )
        self.step = step
        self.make({**SETTINGS, **tandem}, model)

    def make(self, tandem: Mapping[str, Any], model: str) -> None:
        """The parts of a run, as SkyRL's command makes them."""
        cfg = SkyRLTrainConfig.from_cli_overrides([f"trainer.policy.model.path={model}"])
        cfg.trainer.placement.colocate_all = False
        cfg.trainer.export_path = str(self.folder / "exports")
        put_settings(cfg, TandemConfig.from_mapping(tandem))
        self.cfg, experiment = cfg, object.__new__(TandemExp)
        experiment.generator_class, experiment.trainer_class = Loops, Trainer
        client = SimpleNamespace(server_urls=["http://engine"], generate=self.answer)
        self.generator = experiment.get_generator(cfg, TOKENIZER, client)
        self.trainer = experiment.get_trainer(cfg=cfg, driver=self)

    async def answer(self, input_batch: Any, model: str | None = None) -> Any:
        (prompt,) = input_batch["prompt_token_ids"]
        await asyncio.sleep(0)
        return {
            "response_ids": [
                self.engine.answer(prompt, input_batch["sampling_params"]["extra_args"])
            ]
        }

    async def generated(self, phase: Any, samples: int) -> Any:
        """SkyRL's generation of a phase."""
        names = [TrajectoryID(str(p), s) for p in range(PROMPTS) for s in range(samples)]
        place = BatchMetadata(global_step=self.step, training_phase=phase)
        prompts = [[1, 2, int(name.instance_id)] for name in names]
        batch = {"prompts": prompts, "trajectory_ids": names, "batch_metadata": place}
        self.uids = [name.instance_id for name in names]
        return await self.generator.generate(batch)

    def generate(self) -> list[Written]:
        self.trainer.global_step = self.step
        self.output = asyncio.run(self.generated("train", SAMPLES))
        columns = (*COLUMNS[:3], "rollout_logprobs")
        responses = zip(*(self.output[name] for name in columns), strict=True)
        return [Written(prompt, list(ids), *masks) for prompt, ids, *masks in responses]

    def admit(self) -> None:
        self.trainer.convert_to_training_input(self.output, self.uids)

    def update(self, *, is_changed: bool = False) -> None:
        names = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs")
        tensors = convert_prompts_responses_to_batch_tensors(0, *(self.output[n] for n in names))
        columns = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
        data = TrainingInputBatch(dict(zip(columns, tensors[:5], strict=True)))
        if is_changed:
            data["loss_mask"][0, -1] = 1 - data["loss_mask"][0, -1]
        self.trainer.train_critic_and_policy(data)
        self.step += 1

    def metrics(self) -> Mapping[str, Any]:
        return self.trainer.all_metrics

    def dumped(self) -> list[Mapping[str, Any]]:
        lines = (self.folder / "rollouts" / "1.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def validate(self) -> Mapping[str, Any]:
        return asyncio.run(self.trainer.eval())

    def update_without_term(self) -> None:
        raise NotImplementedError

    def save(self) -> list[Path]:
        self.trainer.save_models()
        exported = self.folder / "exports" / f"global_step_{self.trainer.global_step}" / "policy"
        return [Path(self.trainer.save_checkpoints()), exported]

    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        self.begin(3, model, **tandem)
        self.trainer.load_checkpoints()

    def engine_settings(self) -> Mapping[str, Any]:
        self.begin()
        settings = self.cfg.generator.inference_engine.engine_init_kwargs["additional_config"]
        assert settings["tandem"]["require"]
        return settings["tandem"]

    def meet_foreign_part(self) -> None:
        self.begin()
        self.trainer._tandem.trainer = None
        asyncio.run(self.generated("train", SAMPLES))

    def meet_plain_engine(self) -> None:
        self.patched.setattr(VLLMServer, "send", lambda *_: (200, "{}"))
        self.make(SETTINGS, MODEL)
        asyncio.run(self.generated("train", SAMPLES))
