"""TRL's command, its two trainers and the asynchronous worker, held to the start of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import trl
from held_to_the_start import HeldToTheStart
from shared_rollouts import PIECES
from trl.trainer import grpo_trainer, rloo_trainer
from trl_trainer import word_tokenizer

from tandem_plugin import Vocabulary
from tandem_trl import engine, grpo, tandem_rollouts
from tandem_trl.rloo import TandemRLOOTrainer
from tandem_trl.start import GRPOSettings


class ReachedError(Exception):
    """TRL would load the model."""


class OfTRL(HeldToTheStart):
    package = "trl"
    rejected = ({"use_vllm": False}, "trl-engine-not-vllm")
    imitation = "trl-imitation-unsupported"
    pipeline: ClassVar[Mapping[str, Any]] = {"engine": {"pipeline_parallel_size": 2}}
    beside: ClassVar[Mapping[str, Any] | None] = {
        "engine": {"additional_config": {"tandem": {"p": 0.3}}}
    }
    sampled: ClassVar[Mapping[str, Any]] = {"top_p": 0.5}

    @pytest.fixture(autouse=True)
    def _nothing_is_started(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.folder = tmp_path

        def load(*_: Any, **__: Any) -> None:
            raise ReachedError

        for module in (grpo_trainer, rloo_trainer):
            monkeypatch.setattr(module, "create_model_from_path", load)
        monkeypatch.setattr(engine, "_next", [])
        monkeypatch.setattr(trl, "GRPOTrainer", trl.GRPOTrainer)

    def arguments(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        sound = {"output_dir": str(self.folder), "use_cpu": True, "bf16": False, "use_vllm": True}
        own = {name: value for name, value in settings.items() if name != "engine"}
        return kind(**{**sound, **own})

    def generation(self, settings: Mapping[str, Any]) -> Any:
        """What the engine's start knows of TRL's ``VLLMGeneration``."""
        own = {"temperature": 1.0, "generation_kwargs": {}, "structured_outputs_regex": None}
        return SimpleNamespace(**own, top_p=settings.get("top_p", 1.0))

    def begin(self, rollouts: Any, model: str, settings: Mapping[str, Any]) -> None:
        """What TRL does next: it starts the engine, and the training begins."""
        generation = self.generation(settings)
        rollouts._check_model(None, engine._sampling(generation, {}))
        trainer = SimpleNamespace(
            args=rollouts._settings.args,
            model=SimpleNamespace(name_or_path=model),
            tools=None,
            state=SimpleNamespace(global_step=0),
            vllm_generation=generation,
            compute_loss=rollouts._settings.trainer.compute_loss,
            _compute_loss=rollouts._settings.trainer._compute_loss,
        )
        rollouts._generation = generation
        with pytest.raises(AttributeError, match="processing_class"):
            rollouts.begin(type(rollouts._settings), trainer)


class TestGRPO(OfTRL):
    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        rollouts = tandem_rollouts(settings.get("engine"), **tandem)
        args = self.arguments(trl.GRPOConfig, settings)
        with pytest.raises(ReachedError):
            trl.GRPOTrainer(model, print, args, rollout_func=rollouts)
        self.begin(rollouts, model, settings)
        return True


class TestAFunctionThatCallsTheRollouts(OfTRL):
    """It hides them from the trainer's creation: the first rollout checks the rest."""

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        rollouts = tandem_rollouts(settings.get("engine"), **tandem)
        args = self.arguments(trl.GRPOConfig, settings)
        with pytest.raises(ReachedError):
            trl.GRPOTrainer(model, print, args, rollout_func=lambda *given: rollouts(*given))
        assert rollouts._settings is None
        rollouts._check_model(None, engine._sampling(self.generation(settings), {}))
        rollouts._settings = GRPOSettings.of(args, {}, model, grpo_trainer.GRPOTrainer)
        self.begin(rollouts, model, settings)
        return True


class TestRLOO(OfTRL):
    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        rollouts = tandem_rollouts(settings.get("engine"), **tandem)
        args = self.arguments(trl.RLOOConfig, settings)
        with pytest.raises(ReachedError):
            TandemRLOOTrainer(model, print, args, rollout_func=rollouts)
        self.begin(rollouts, model, settings)
        return True


class TestCommand(OfTRL):
    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        from trl.scripts import grpo as script

        reached: list[Any] = []
        arguments = [f"--tandem.{name}={json.dumps(value)}" for name, value in tandem.items()]
        if "engine" in settings:
            arguments.append(f"--tandem.engine={json.dumps(settings['engine'])}")
        sound = {"output_dir": self.folder, "use_cpu": True, "bf16": False, "use_vllm": True}
        named = {**sound, "model_name_or_path": model, **settings}
        for name, value in named.items():
            if name != "engine":
                arguments += [f"--{name}", str(value)]
        trl.GRPOTrainer = grpo_trainer.GRPOTrainer
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(script, "main", lambda *parsed: reached.append(parsed))
            grpo.main(arguments)
        rollouts = trl.GRPOTrainer.keywords["rollout_func"]
        self.begin(rollouts, model, settings)
        return bool(reached)


class TestAsynchronousWorker(OfTRL):
    rejected = ({"tandem.lambda_jun": 0.1}, "trl-imitation-unsupported")
    pipeline = beside = None  # the server's

    @pytest.fixture(autouse=True)
    def _vocabulary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """That of a tokenizer which does not decode as its pieces say."""
        vocabulary = Vocabulary(PIECES, "a test")
        monkeypatch.setattr(Vocabulary, "from_tokenizer", lambda tokenizer: vocabulary)

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        from trl.experimental.async_grpo import AsyncGRPOConfig

        from tandem_trl.async_rollouts import TandemRolloutWorker

        own = {k: v for k, v in settings.items() if not k.startswith("tandem.")}
        of_tandem = {k.removeprefix("tandem."): v for k, v in settings.items() if k not in own}
        args = AsyncGRPOConfig(output_dir=str(self.folder), use_cpu=True, bf16=False, **own)
        worker = TandemRolloutWorker(
            args,
            tandem={**tandem, **of_tandem, "measure_every": 0},
            model_name=model,
            processing_class=word_tokenizer(),
            dataset=None,
            reward_funcs=[],
        )
        state = SimpleNamespace(global_step=0, stateful_callbacks=dict[str, Any]())
        callback = worker.callback()
        callback.on_train_begin(args, state, None)
        return callback.has_begun and "tandem" in state.stateful_callbacks
