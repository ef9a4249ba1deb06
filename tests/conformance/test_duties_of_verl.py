"""verl's agent loops and trainer, held to the duties of an adapter: loops with a tool's output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("verl", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from held_to_the_duties import FEEDBACK, MODEL, PROMPTS, SAMPLES, SETTINGS, HeldToTheDuties, Written
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl_stand_ins import TOKENIZER, configuration

from tandem_verl import trainer as module
from tandem_verl.configuration import prepare
from tandem_verl.engine import ServerInTandem
from tandem_verl.rollouts import ManagerInTandem
from tandem_verl.settings import tandem_node
from tandem_verl.trainer import TrainerInTandem


class Worker:
    """verl's ``AgentLoopWorker``, with a loop of two calls."""

    def __init__(self, config: Any, driver: TestVerl) -> None:
        self.config, self.tokenizer = config, TOKENIZER
        self.llm_client = SimpleNamespace(generate=driver.answer)
        self.driver = driver

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **sample: Any) -> Any:
        prompt = sample["prompt"]
        ids: list[int] = []
        mask: list[int] = []
        for feedback in (FEEDBACK, []):
            answer = await self.llm_client.generate(
                "a random id", prompt_ids=[*prompt, *ids], sampling_params=sampling_params
            )
            ids += [*answer.token_ids, *feedback]
            mask += [1] * len(answer.token_ids) + [0] * len(feedback)
        output = AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=ids,
            response_mask=mask,
            response_logprobs=[-1.0] * len(ids),
            reward_score=1.0,
            metrics=AgentLoopMetrics(),
            extra_fields={},
        )
        return await self._agent_loop_postprocess(output, trajectory["validate"], **sample)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any:
        self.driver.rows[sample["uid"]] = output
        return output

    async def _compute_score(self, outputs: Any, kwargs: Any) -> None: ...


class Manager:
    """verl's ``AgentLoopManagerTQ``, which runs a loop for each sample of its prompts."""

    agent_loop_workers_class = Worker

    def __init__(self, driver: TestVerl) -> None:
        self.driver = driver

    def generate_sequences(self, prompts: TensorDict) -> None:
        validates = bool(prompts["validate"])
        worker = type(self.worker).tandem_over(Worker)(self.driver.config, self.driver)
        params = {"extra_args": {"mine": 1}}
        for row in range(len(prompts)):
            for session in range(1 if validates else SAMPLES):
                fields = {name: prompts[name][row] for name in ("tandem_row",)}
                if validates:
                    fields["tandem_answerer"] = self.driver.answerer
                place = {"step": int(prompts["global_steps"]), "sample_index": 0, "rollout_n": 0}
                uid = f"u{row}_{session}_0"
                loop = worker._run_agent_loop(
                    params,
                    trajectory={**place, "validate": validates},
                    session_id=session,
                    uid=uid,
                    prompt=[1, 2, row],
                    **fields,
                )
                asyncio.run(loop)
        assert params == {"extra_args": {"mine": 1}}

    @property
    def worker(self) -> Any:
        """A worker as its Ray actor is made."""
        actor = self.agent_loop_workers_class
        return object.__new__(getattr(actor, "__ray_actor_class__", actor))


class TrainerV1:
    """verl's ``PPOTrainer`` without models."""

    def __init__(self, config: Any, driver: TestVerl) -> None:
        self.config, self.driver, self.global_steps = config, driver, 0
        self.replay_buffer = self._build_replay_buffer()
        handle = SimpleNamespace(
            tandem_counters=SimpleNamespace(remote=lambda what: driver.engine.counters(what))
        )
        self.llm_server_manager = SimpleNamespace(server_handles=[handle])
        self.val_dataloader = [{"uid": [str(prompt) for prompt in range(PROMPTS)]}]
        self._init_tokenizer()

    def _init_tokenizer(self) -> None:
        self.tokenizer = TOKENIZER

    def _init_dataloader(self) -> None: ...

    def _setup(self) -> None: ...

    def _load_checkpoint(self) -> None:
        self.global_steps = 1

    def _save_checkpoint(self) -> None: ...

    def _init_resource_pool_mgr(self) -> None: ...

    def fit(self, agent_loop_manager: Any) -> None: ...

    def _validate(self) -> dict[str, float]:
        for batch in self.val_dataloader:
            self.driver.answerer = batch["tandem_answerer"][0]
            self.driver.play(batch["tandem_row"], validates=True)
        self.replay_buffer.sample()
        return {"val-core/a/acc/mean@1": self.driver.accuracy}

    def _build_replay_buffer(self) -> Any:
        def sample() -> tuple[Any, dict[str, Any]]:
            return self.driver.batch, {}

        return SimpleNamespace(sample=sample)

    def _dump_generations(self, **dump: Any) -> None:
        self.driver.dump = dump

    def _compute_advantage(self, batch: Any, metrics: Any) -> Any: ...

    def _update_critic(self, batch: Any, metrics: Any) -> Any: ...

    def _update_actor(self, batch: Any, metrics: Any) -> Any: ...


class TestVerl(HeldToTheDuties):
    term_missing = "imitation-term-missing"

    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        self.patched.setattr("ray.get", lambda values: values)
        self.patched.setattr(module, "queue", lambda: self)
        self.step, self.rows = step, dict[str, Any]()
        self.config = OmegaConf.create(OmegaConf.to_container(configuration(SETTINGS | tandem)))
        places = {"default_local_dir": str(self.folder), "resume_mode": "auto"}
        self.config.trainer.update({**places, "rollout_data_dir": str(self.folder / "rollouts")})
        self.config.actor_rollout_ref.model.path = model
        prepare(self.config)
        self.manager = ManagerInTandem.tandem_over(Manager)(self)
        self.trainer = TrainerInTandem.tandem_over(TrainerV1)(self.config, self)

    dumping: ClassVar[Mapping[str, Any]] = {}

    async def answer(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
        tokens = self.engine.answer(prompt_ids, sampling_params["extra_args"])
        return SimpleNamespace(token_ids=tokens)

    def play(self, numbers: Any, *, validates: bool) -> None:
        """Run the loops of a step's prompts; their outputs come to TransferQueue."""
        self.rows, self.partition = {}, "val" if validates else "train"
        prompts = {"global_steps": torch.tensor(self.step), "validate": torch.tensor(validates)}
        if numbers is not None:
            prompts["tandem_row"] = torch.tensor([int(number) for number in numbers])
        columns = Prompts(prompts)
        self.manager.generate_sequences(columns)

    @property
    def batch(self) -> Any:
        return SimpleNamespace(
            keys=[*self.rows],
            partition_id=self.partition,
            tags=[{} for _ in self.rows],
            extra_info={},
        )

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        rows = []
        for key in keys:
            fields = self.rows[key].as_dict()
            fields["loss_mask"] = fields["response_mask"]
            rows.append({name: fields[name] for name in select_fields if name in fields})
        return list_of_dict_to_tensordict(rows)

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> Any:
        return SimpleNamespace(keys=keys, partition_id=partition_id)

    def generate(self) -> list[Written]:
        self.trainer.global_steps = self.step
        self.play(None, validates=False)
        return [
            Written(
                output.prompt_ids,
                output.response_ids,
                output.response_mask,
                output.response_logprobs,
            )
            for output in self.rows.values()
        ]

    def admit(self) -> None:
        _, self.logged = self.trainer.replay_buffer.sample()

    def update(self, *, is_changed: bool = False) -> None:
        first = next(iter(self.rows.values()))
        first.response_mask[0] ^= is_changed
        self.trainer._update_actor(self.batch, {})
        self.step += 1

    def metrics(self) -> Mapping[str, Any]:
        return self.logged

    def dumped(self) -> list[Mapping[str, Any]]:
        lists = {name: [1.0] * len(self.rows) for name in ("inputs", "outputs", "gts", "scores")}
        self.trainer._dump_generations(
            **lists, reward_extra_infos_dict={"uid": [*self.rows]}, dump_path=""
        )
        columns = {name.removesuffix("s"): self.dump[name] for name in lists}
        columns |= self.dump["reward_extra_infos_dict"]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def validate(self) -> Mapping[str, Any]:
        return self.trainer._validate()

    def update_without_term(self) -> None:
        self.trainer._update_actor(self.batch, {})

    def save(self) -> list[Path]:
        self.trainer.global_steps = 1
        self.trainer._save_checkpoint()
        return [self.folder / "global_step_1"]

    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        self.begin(2, model, **tandem)
        self.trainer._load_checkpoint()

    def engine_settings(self) -> Mapping[str, Any]:
        self.begin()
        return OmegaConf.to_container(tandem_node(self.config))

    def meet_foreign_part(self) -> None:
        self.begin()
        self.trainer.fit(SimpleNamespace())

    def meet_plain_engine(self) -> None:
        architectures = SimpleNamespace(architectures=["Qwen3ForCausalLM"])
        plain = SimpleNamespace(model_config=architectures)

        class Server:
            engine = SimpleNamespace(vllm_config=plain, shutdown=lambda: None)

            def __init__(self, config: Any) -> None:
                self.config = config

            async def run_server(self) -> None: ...

            async def generate(self) -> None: ...

        asyncio.run(ServerInTandem.tandem_over(Server)(None).run_server())


class Prompts(dict[str, Any]):
    """A TensorDict of prompts, as the manager uses it."""

    def __len__(self) -> int:
        return PROMPTS
