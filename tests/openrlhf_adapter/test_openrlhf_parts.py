"""OpenRLHF's trainers go on with tandem's parts only, in engines that run in tandem."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.patches.generation import Generator, ResumedGenerator
from tandem_openrlhf.patches.imitation import ImitatingTrainer, Imitation
from tandem_openrlhf.patches.training import Maker, Policy, SynchronousTrainer, Trainer
from tandem_openrlhf.trajectory import TandemExecutor
from tandem_plugin import TandemConfig
from tandem_plugin.patching.subclasses import in_tandem
from tandem_plugin.training.trajectory import Numbering


class Foreign:
    """Stands for a class of OpenRLHF's whose parts are not tandem's."""

    experience_maker = samples_generator = trainer = None
    begun = False

    def init_checkpoint_states(self) -> Any: ...

    def train_step(self, samples: Any) -> Any: ...

    def init_model_from_pretrained(self) -> None: ...

    def fit(self, episode: int, total_consumed_prompts: int) -> None:
        self.begun = True


@pytest.mark.parametrize("ours", [Trainer, SynchronousTrainer])
def test_trainer_without_tandems_check_of_batches_stops(ours: type) -> None:
    with refused("TP375"):
        in_tandem(Foreign, ours)()


def test_generator_and_policy_that_are_not_tandems_stop() -> None:
    generating = in_tandem(Foreign, ResumedGenerator)()
    with refused("TP375"):
        generating.fit(1, 12)
    assert not generating.begun
    with refused("TP375"):
        in_tandem(Foreign, Policy)().init_model_from_pretrained()


class Resumed:
    """OpenRLHF's trainer at a checkpoint behind step 3, with 12 prompts drawn."""

    def __init__(self) -> None:
        self.vllm_engines: list[Any] = []
        self.tokenizer = SimpleNamespace(decode=str)
        self.experience_maker = object.__new__(Maker)
        self.experience_maker.tandem = SimpleNamespace(dump=lambda *dumped: None)
        self.samples_generator = object.__new__(Generator)
        self.samples_generator.numbering = Numbering()

    def init_checkpoint_states(self) -> dict[str, int]:
        return {"total_consumed_prompts": 12, "global_step": 3}

    def train_step(self, samples: Any) -> tuple[dict[str, float], int]:
        return {}, 4


def test_prompts_are_numbered_on_from_a_checkpoint_for_the_step_that_follows() -> None:
    trainer = in_tandem(Resumed, SynchronousTrainer)()
    trainer.init_checkpoint_states()
    assert trainer.samples_generator.numbering == Numbering(next_prompt=12, step=4)
    trainer.train_step([])
    assert trainer.samples_generator.numbering == Numbering(next_prompt=12, step=5)


def test_engine_without_tandem_is_refused_before_it_is_asked() -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    plain = SimpleNamespace(model_config=SimpleNamespace(architectures=["Qwen3ForCausalLM"]))
    engine = SimpleNamespace(llm=SimpleNamespace(vllm_config=plain))
    executor = TandemExecutor(None, TandemConfig())
    call = {"label": "", "sampling_params": None, "hf_tokenizer": None, "llm_engine": engine}
    with refused("TP363"):
        asyncio.run(executor.execute(**call))


class Spending:
    """OpenRLHF's trainer, whose step does with its loss what it is told."""

    def __init__(self, step: Any) -> None:
        self.actor = SimpleNamespace(forward=None)
        self.strategy = SimpleNamespace(backward=lambda loss: None)
        self.step = step

    def training_step(self, experience: Any, kl_ctl: float, step: int) -> Any:
        self.step(self)
        return {"metrics": {}, "weights": {}}


@pytest.mark.parametrize(
    ("step", "code"),
    [(lambda _: None, "TP602"), (lambda self: self.strategy.backward(0.0), "TP601")],
)
def test_step_that_does_not_spend_the_imitation_term_stops(
    step: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitation = Imitation(0.5, mask=None, tokens=4, ranks=1)
    monkeypatch.setattr(ImitatingTrainer, "_tandem_imitation", lambda *_: imitation)
    with refused(code, lambda_jun=0.5):
        in_tandem(Spending, ImitatingTrainer)(step).training_step(None, 0.0, 0)
