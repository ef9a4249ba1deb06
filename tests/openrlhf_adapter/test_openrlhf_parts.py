"""A trainer goes on with tandem's parts only, and tells them where the run stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.patches.generation import Generator, named_metrics
from tandem_openrlhf.patches.training import (
    Maker,
    SynchronousTrainer,
    Trainer,
)
from tandem_plugin.patching.subclasses import in_place_of
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.trajectory import KeyedLabel, Numbering
from tandem_plugin.training.validation import ANSWERER, answerers


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


class TheirGenerator:
    """As OpenRLHF's, which walks through two prompts to evaluate."""

    def generate_eval_samples(self, **options: Any) -> list[Any]:
        assert options == {"temperature": 0.6}
        return self._dispatch_prompts_to_vllm(["p", "q"], ["a", "b"], images=None)

    def _process_response_into_experience(self) -> None: ...

    def _dispatch_prompts_to_vllm(self, prompts: Any, labels: Any, **more: Any) -> list[Any]:
        assert (prompts, more) == (["p", "q"], {"images": None})
        return [SimpleNamespace(key=label) for label in labels]


def in_tandem(ours: type, theirs: type) -> Any:
    module: Any = SimpleNamespace(Kind=theirs)
    for _ in range(2):
        in_place_of("Kind", ours)(module)
    assert module.Kind.__bases__ == (ours, theirs)  # put in place once
    assert module.Kind.__qualname__ == theirs.__qualname__
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


def test_each_answerers_metrics_have_names_of_their_own() -> None:
    def mean(loader: str, samples: Sequence[Any], n: int) -> dict[str, float]:
        assert (loader, n) == ("the loader", 1)
        return {"pass1": sum(sample.reward for sample in samples) / len(samples)}

    samples = [
        SimpleNamespace(**{ANSWERER: answerer}, reward=reward)
        for answerer, reward in (("senior", 0.0), ("senior", 1.0), ("team", 1.0))
    ]
    for some, expected in (
        (samples[:2], {"pass1": 0.5}),
        (samples[2:], {"team/pass1": 1.0}),
        (samples, {"pass1": 0.5, "team/pass1": 1.0}),
        ([], {}),
    ):
        assert named_metrics(mean, "the loader", some, 1) == expected


@pytest.mark.parametrize("validation", ["senior", "team", "both"])
def test_every_prompt_is_walked_through_once_an_answerer(
    validation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"validation": validation}))
    generator = in_tandem(Generator, TheirGenerator)()
    generator.numbering.next_prompt, generator.numbering.step = 3, 1
    samples = generator.generate_eval_samples(temperature=0.6)
    walks = answerers(validation)
    assert [getattr(sample, ANSWERER) for sample in samples] == [w for w in walks for _ in "ab"]
    assert [sample.key for sample in samples] == [
        KeyedLabel(label, "validation", i, step=0, by_team=walk == "team")
        for walk in walks
        for i, label in enumerate("ab")
    ]
    # The numbers of training go on where they were.
    (next_one,) = generator.numbering.keyed(["c"])
    assert next_one == KeyedLabel("c", "training", 3, step=1, by_team=True)
