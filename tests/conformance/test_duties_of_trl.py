"""TRL's two kinds of rollouts, held to the duties of an adapter: one turn, and its tool loop."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import torch
from held_to_the_duties import FEEDBACK, MODEL, PROMPTS, SAMPLES, SETTINGS, HeldToTheDuties, Written
from trl import GRPOTrainer
from trl.generation import vllm_generation

from tandem_trl import engine, tandem_rollouts

IDS = list[int]


class Params(SimpleNamespace):
    """Of vLLM's ``SamplingParams`` what the adapter uses."""

    def clone(self) -> Params:
        return copy.copy(self)


class LLM:
    """As TRL starts it."""

    def __init__(self, driver: OfGRPOTrainer, **options: Any) -> None:
        self.driver, driver.options = driver, options
        architectures = ["Qwen3ForCausalLM"]
        config = SimpleNamespace(model_config=SimpleNamespace(architectures=architectures))
        self.llm_engine = SimpleNamespace(vllm_config=config)

    def generate(self, prompts: Any, sampling_params: Any, lora_request: None) -> list[Any]:
        answers = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            ids = prompt["prompt_token_ids"]
            tokens = self.driver.engine.answer(ids, params.extra_args)
            outputs = [SimpleNamespace(token_ids=tokens)]
            answers.append(SimpleNamespace(prompt_token_ids=list(ids), outputs=outputs))
        return answers

    def collective_rpc(self, method: str) -> list[Any]:
        return [[] if method == "tandem_ends" else self.driver.engine.counters(method)]


def loss(trainer: Any, inputs: Any) -> None:
    """TRL's; its inputs are checked before."""


loss.__module__, loss.__qualname__ = GRPOTrainer.__module__, "GRPOTrainer.compute_loss"


class OfGRPOTrainer(HeldToTheDuties):
    foreign_part = "trl-engine-not-in-tandem"
    absent: ClassVar[Mapping[str, str]] = {
        "imitate": "lambda_jun is rejected at the start",
    }
    tools: ClassVar[list[Any] | None] = None
    extra: ClassVar[Mapping[str, Any]] = {"mine": 1}

    def begin(self, step: int = 1, model: str = MODEL, **tandem: Any) -> None:
        self.patched.setattr(engine, "check_engine", lambda _: None)
        self.make({**SETTINGS, **tandem}, step, model)

    def make(self, tandem: Mapping[str, Any], step: int, model: str) -> None:
        """The parts of a run, in the order in which TRL makes them."""
        self.patched.setattr(engine, "_next", [])
        self.patched.setattr(vllm_generation, "LLM", lambda **options: LLM(self, **options))
        self.rollouts = tandem_rollouts(**tandem)
        generation = SimpleNamespace(
            mode="colocate",
            temperature=1.0,
            generation_kwargs={"extra_args": {"mine": 1}},
            structured_outputs_regex=None,
            model=SimpleNamespace(name_or_path=model),
            generate=self.answer,
            tensor_parallel_size=1,
        )

        def initialise(_: Any) -> None:
            generation.llm = vllm_generation.LLM(model=model)

        engine._start_engine(initialise, generation)
        self.trainer = self.made_trainer(generation, step)

    def made_trainer(self, generation: Any, step: int) -> Any:
        """Of a ``GRPOTrainer`` what the adapter reads."""
        self.callbacks: list[Any] = []
        arguments = {"use_vllm": True, "loss_type": "dapo", "output_dir": str(self.folder)}
        return SimpleNamespace(
            args=SimpleNamespace(
                **arguments,
                world_size=1,
                vllm_mode="colocate",
                vllm_tensor_parallel_size=1,
                resume_from_checkpoint=None,
            ),
            tools=self.tools,
            compute_loss=loss,
            _calculate_rewards=lambda *_: None,
            _compute_loss=GRPOTrainer._compute_loss,
            model=SimpleNamespace(training=True, name_or_path=generation.model.name_or_path),
            state=SimpleNamespace(
                global_step=step - 1, stateful_callbacks={}, is_world_process_zero=True
            ),
            accelerator=SimpleNamespace(process_index=0, is_main_process=True),
            vllm_generation=generation,
            processing_class=SimpleNamespace(decode=str),
            eos_token_ids=[],
            num_generations=SAMPLES,
            num_generations_eval=1,
            mask_truncated_completions=False,
            add_callback=self.callbacks.append,
            reward_func_names=["reward"],
            reward_weights=torch.ones(1),
            _logs={"rewards": {"reward": [0.0, 1.0] * PROMPTS}},
            _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
            eval_dataset=range(PROMPTS),
            log=self.log,
            evaluate=self.evaluate,
            callback_handler=SimpleNamespace(
                eval_dataloader=SimpleNamespace(dataset=range(PROMPTS))
            ),
            _tokenize_prompts=lambda prompts: (prompts, None, {}),
            _tool_call_loop=self.tool_loop,
        )

    def log(self, logs: dict[str, float]) -> None:
        """TRL's: the means of what was collected in an evaluation, which begins anew."""
        collected = self.trainer._metrics["eval"]
        means = {name: sum(values) / len(values) for name, values in collected.items()}
        self.logged |= means
        collected.clear()

    def answer(self, prompts: Any, **_: Any) -> Any:
        """TRL's ``VLLMGeneration.generate``."""
        llm = self.trainer.vllm_generation.llm
        sent = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = llm.generate(sent, Params(extra_args={"mine": 1}))
        tokens = [output.outputs[0].token_ids for output in outputs]
        # Of each token, and of what else the engine was asked for.
        return prompts, tokens, [[[-1.0, -9.0] for _ in each] for each in tokens], None

    def tool_loop(
        self,
        prompts: Any,
        prompt_ids: Any,
        completion_ids: Any,
        _: Any,
        logprobs: Any,
        *images: Any,
    ) -> Any:
        """TRL's own, in which each row calls a tool once."""
        longer = [p + (c + FEEDBACK) for p, c in zip(prompt_ids, completion_ids, strict=True)]
        _, answers, *_ = self.trainer.vllm_generation.generate(longer)
        rows = list(zip(completion_ids, answers, strict=True))
        masks = [[1] * len(a) + [0] * len(FEEDBACK) + [1] * len(b) for a, b in rows]
        return masks, [], [a + FEEDBACK + b for a, b in rows], [[-1.0] * len(m) for m in masks]

    def generated(self, samples: int) -> list[Written]:
        """What TRL makes of a rollout."""
        prompts = [[1, 2, prompt] for prompt in range(PROMPTS) for _ in range(samples)]
        output = self.rollouts(prompts, self.trainer)
        completions, log_probs = output["completion_ids"], output["logprobs"]
        masks = output.get("env_mask")
        if self.tools:
            masks, _, completions, log_probs = self.trainer._tool_call_loop(
                prompts, output["prompt_ids"], completions, [], log_probs, None, None
            )
        return [Written(*row) for row in zip(prompts, completions, masks, log_probs, strict=True)]

    def generate(self) -> list[Written]:
        self.responses = self.generated(SAMPLES)
        return self.responses

    def admit(self) -> None:
        """With the rollout."""

    def update(self, *, is_changed: bool = False) -> None:
        def padded(rows: list[IDS], side: str = "right") -> Any:
            tensors = [torch.tensor(row) for row in rows]
            return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_side=side)

        responses = self.responses[::-1]
        inputs = {
            "prompt_ids": padded([r.prompt for r in responses], "left"),
            "prompt_mask": padded([[1] * len(r.prompt) for r in responses], "left"),
            "completion_ids": padded([r.response for r in responses]),
            "completion_mask": padded([[1] * len(r.response) for r in responses]),
            "tool_mask": padded([r.mask for r in responses]),
        }
        inputs["tool_mask"][0, 0] ^= is_changed
        self.trainer.compute_loss(SimpleNamespace(training=True), inputs)
        self.trainer.state.global_step += 1

    def metrics(self) -> Mapping[str, Any]:
        return {name: values[-1] for name, values in self.trainer._metrics["train"].items()}

    def dumped(self) -> list[Mapping[str, Any]]:
        lines = (self.folder / "rollouts" / "1.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def validate(self) -> Mapping[str, Any]:
        self.logged: dict[str, float] = {}
        self.trainer.model.training = False
        self.trainer.evaluate()
        self.trainer.model.training = True
        return self.logged

    def evaluate(self, problems: Any = None, metric_key_prefix: str = "eval") -> None:
        """TRL's, which logs what the generation collected."""
        assert problems in (None, range(PROMPTS))
        self.generated(1)
        self.trainer._metrics["eval"]["reward"].append(self.accuracy)
        self.trainer.log({f"{metric_key_prefix}_runtime": 1.0})

    def update_without_term(self) -> None:
        raise NotImplementedError

    def save(self) -> list[Path]:
        (callback,) = self.callbacks
        callback.on_save(self.trainer.args, self.trainer.state, None)
        callback.on_train_end(self.trainer.args, self.trainer.state, None)
        return [self.folder / "checkpoint-1", self.folder]

    def resume(self, model: str = MODEL, **tandem: Any) -> None:
        self.begin(2, model, **tandem)
        self.generated(SAMPLES)

    def engine_settings(self) -> Mapping[str, Any]:
        self.begin()
        settings: Mapping[str, Any] = self.options["additional_config"]["tandem"]
        assert settings["require"]
        return settings

    def meet_foreign_part(self) -> None:
        self.begin()
        self.trainer.vllm_generation = SimpleNamespace(**vars(self.trainer.vllm_generation))
        self.generate()

    def meet_plain_engine(self) -> None:
        self.make(SETTINGS, 1, MODEL)


class TestRollouts(OfGRPOTrainer):
    turns = 1


class TestToolLoop(OfGRPOTrainer):
    tools: ClassVar[list[Any] | None] = [print]
