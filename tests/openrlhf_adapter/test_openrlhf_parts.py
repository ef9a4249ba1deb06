"""A trainer goes on with tandem's parts only, and tells them where the run stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.patches.generation import Generator, ResumedGenerator
from tandem_openrlhf.patches.training import (
    Maker,
    MaskedTrainer,
    Policy,
    SynchronousTrainer,
    Trainer,
)
from tandem_plugin.patching.subclasses import check_part, in_place_of
from tandem_plugin.training.numbered_prompts import Numbering


class ForeignBase:
    """Stands for a class of OpenRLHF's."""


def part(ours: type) -> Any:
    """One of tandem's parts of a trainer, as OpenRLHF's own is derived from."""
    made: Any = object.__new__(type("ForeignBase", (ours, ForeignBase), {}))
    dumped: list[Any] = []
    made.tandem = SimpleNamespace(
        engines=(), dumped=dumped, dump=lambda samples, step, _: dumped.append((samples, step))
    )
    made.numbering = Numbering()
    return made


class TheirTrainer:
    """As OpenRLHF's, with the parts that it is given."""

    def __init__(self, maker: Any, generator: Any) -> None:
        self.experience_maker, self.samples_generator = maker, generator
        self.vllm_engines = ["an engine"]
        self.tokenizer = SimpleNamespace(decode=str)

    def init_checkpoint_states(self) -> Any:
        return {"total_consumed_prompts": 12, "global_step": 3}

    def train_step(self, samples: Any, global_step: int) -> Any:
        return {"status": samples}, global_step + 1


class TheirGeneratingActor:
    def __init__(self, generator: Any) -> None:
        self.samples_generator = generator

    def fit(self, episode: int, total_consumed_prompts: int) -> None:
        self.begun = (episode, total_consumed_prompts)


class TheirActor:
    def init_model_from_pretrained(self, strategy: str, trainer: Any) -> None:
        assert strategy == "the strategy"
        self.trainer = trainer


def in_tandem(ours: type, theirs: type) -> Any:
    module: Any = SimpleNamespace(Kind=theirs)
    in_place_of("Kind", ours)(module)
    return module.Kind


@pytest.mark.parametrize("ours", [Trainer, SynchronousTrainer])
def test_trainer_lets_the_check_of_batches_know_the_engines(ours: type) -> None:
    trainer = in_tandem(ours, TheirTrainer)(part(Maker), None)
    assert trainer.experience_maker.tandem.engines == ["an engine"]
    with refused("TP375"):
        in_tandem(ours, TheirTrainer)(ForeignBase(), None)


def test_synchronous_trainer_numbers_prompts_from_its_checkpoint_and_steps_on() -> None:
    trainer = in_tandem(SynchronousTrainer, TheirTrainer)(part(Maker), part(Generator))
    assert trainer.init_checkpoint_states()["global_step"] == 3
    numbering = trainer.samples_generator.numbering
    assert (numbering.next_prompt, numbering.step) == (12, 4)
    assert trainer.train_step("samples", 3) == ({"status": "samples"}, 4)
    assert (numbering.next_prompt, numbering.step) == (12, 5)
    assert trainer.experience_maker.tandem.dumped == [("samples", 4)]
    with refused("TP375"):
        in_tandem(SynchronousTrainer, TheirTrainer)(
            part(Maker), ForeignBase()
        ).init_checkpoint_states()


def test_prompts_are_not_sent_before_their_numbers_are_known() -> None:
    class TheirGenerator:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        def generate_eval_samples(self) -> list[Any]:
            return self._dispatch_prompts_to_vllm(["p"], ["a"])

        def _dispatch_prompts_to_vllm(self, prompts: Any, labels: Any) -> list[Any]:
            self.sent += labels
            return []

        def _process_response_into_experience(self) -> None: ...

    generator = in_tandem(Generator, TheirGenerator)()
    with refused("TP435"):
        generator._dispatch_prompts_to_vllm(["p"], ["a"])
    assert generator.sent == []
    generator.numbering.next_prompt = 7
    generator._dispatch_prompts_to_vllm(["p"], ["a"])
    assert [label.prompt for label in generator.sent] == [7]


def test_generator_of_an_asynchronous_run_numbers_prompts_from_its_checkpoint() -> None:
    actor = in_tandem(ResumedGenerator, TheirGeneratingActor)(part(Generator))
    actor.fit(1, 12)
    assert actor.samples_generator.numbering.next_prompt == 12
    assert actor.begun == (1, 12)
    foreign = in_tandem(ResumedGenerator, TheirGeneratingActor)(ForeignBase())
    with refused("TP375"):
        foreign.fit(1, 12)
    assert not hasattr(foreign, "begun")


def test_worker_that_trains_stops_where_its_trainer_is_not_tandems() -> None:
    actor = in_tandem(Policy, TheirActor)()
    actor.init_model_from_pretrained("the strategy", part(MaskedTrainer))
    with refused("TP375"):
        actor.init_model_from_pretrained("the strategy", ForeignBase())


def test_what_a_user_derives_from_a_class_that_is_in_place_is_a_part_as_well() -> None:
    class Derived(in_tandem(Trainer, TheirTrainer)):  # type: ignore[misc]
        pass

    check_part(Derived(part(Maker), None), Trainer)
    with refused("TP375"):
        check_part(TheirTrainer(None, None), Trainer)


def test_class_that_lost_a_method_which_tandem_extends_is_not_put_in_place() -> None:
    with refused("TP374", name="TheirActor", problem="has no method fit"):
        in_tandem(ResumedGenerator, TheirActor)
