"""The adapter that docs/architecture.md shows for the toy trainer, held to the shared rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from refused import refused

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from adapter_of_the_page import adapter_of_the_page  # noqa: E402
from held_to_the_rollouts import HeldToTheRollouts  # noqa: E402
from shared_rollouts import (  # noqa: E402
    LONGEST,
    PIECES,
    Rollout,
    old_log_probs,
    rollouts,
    rule,
    tiny_model,
)
from toy_trainer import Client, Sample  # noqa: E402

from tandem_plugin import Vocabulary  # noqa: E402
from tandem_plugin.schedules import schedule_parameters  # noqa: E402
from tandem_plugin.training.authorship_wire import (  # noqa: E402
    ResponseAuthorship,
    ranges_of,
)
from tandem_plugin.training.calls import Trajectory  # noqa: E402

page = adapter_of_the_page()
VOCABULARY = Vocabulary(PIECES, "the conformance suite")
SETTINGS = {"schedule": "word", **schedule_parameters(rule().schedule)}


class Scripted:
    """Answers each call of each rollout with its tokens, in the order in which they are played."""

    def __init__(self, every: Sequence[Rollout]) -> None:
        self._answers = iter([call for one in every for turn in one.calls for call in turn])

    def generate(self, prompt_ids: Sequence[int], extra: dict[str, Any]) -> list[int]:
        call = next(self._answers)
        assert extra["tandem"]["seed"] == call.seed
        return list(call.tokens)


class Trainer(page.TandemTrainer):  # type: ignore[misc, name-defined]
    """With the seeds of the rollouts, which were drawn for their kinds."""

    def __init__(self, every: Sequence[Rollout]) -> None:
        self._every = every
        super().__init__(SETTINGS, VOCABULARY, Scripted(every), tiny_model(), LONGEST)

    def trajectory(self, number: int) -> Trajectory:
        calls = [call for turn in self._every[number].calls for call in turn]
        trajectory: Trajectory = super().trajectory(number)
        return replace(trajectory, seed_of_call=lambda call: calls[call].seed)

    def samples(self) -> list[Sample]:
        loops = [loop_of(one, number) for number, one in enumerate(self._every)]
        return [self.run(loop, number, self.client) for number, loop in enumerate(loops)]


def loop_of(rollout: Rollout, number: int) -> Callable[[Client], Sample]:
    """An agent loop that plays a rollout."""

    def loop(client: Client) -> Sample:
        sent = list(rollout.prompt)
        for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
            for _ in sampled:
                client.generate(sent, {})
            sent += [*turn.tokens, *turn.feedback]
        old = old_log_probs(rollout, number).float()
        prompt, response = list(rollout.prompt), rollout.response
        return Sample(rollout.group, prompt, response, rollout.generated, rollout.reward, old)

    return loop


class TestThirdAdapter(HeldToTheRollouts):
    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        (sample,) = Trainer([rollout]).samples()
        facts = ResponseAuthorship.from_wire(sample.extra["tandem"])
        return sample.mask, facts.junior_mask.astype(int).tolist()

    def gradient(self, mode: str) -> Any:
        trainer = Trainer(rollouts())
        trainer.update(trainer.samples())
        return trainer.model


def test_update_moves_the_model_and_is_logged_with_the_seniors_share() -> None:
    trainer = Trainer(rollouts())
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    metrics = trainer.step([loop_of(one, number) for number, one in enumerate(rollouts())])
    after = [parameter.detach() for parameter in trainer.model.parameters()]
    assert not all(map(torch.equal, after, before))
    trained = sum(sum(one.mask(LONGEST)) for one in rollouts())
    known = sum(sum(one.known[:LONGEST]) for one in rollouts())
    generated = sum(sum(one.generated[:LONGEST]) for one in rollouts())
    assert metrics["tandem/senior_share"] == pytest.approx(trained / known)
    assert metrics["tandem/tokens_of_unknown_author"] == generated - known > 0


def complement(sample: Sample) -> None:
    facts = ResponseAuthorship.from_wire(sample.extra["tandem"])
    facts = replace(facts, senior=tuple(ranges_of(~facts.authorship)))
    sample.mask = facts.mask.astype(int).tolist()
    sample.extra["tandem"] = facts.to_wire()


def changed(**fields: Callable[[Any], Any]) -> Callable[[Sample], None]:
    """Changes columns of a sample."""

    def change(sample: Sample) -> None:
        for name, new in fields.items():
            setattr(sample, name, new(getattr(sample, name)))

    return change


SPOILED = {
    "a mask that is not narrowed": (changed(mask=lambda mask: [1] * len(mask)), "mask-not-seniors"),
    "no facts": (changed(extra=lambda extra: {}), "row-without-authorship"),
    "the complement": (complement, "authorship-replay-differs"),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILED.values(), ids=SPOILED.keys())
def test_spoiled_sample_stops_the_update_before_anything_is_learned(
    spoil: Callable[[Sample], None], code: str
) -> None:
    trainer = Trainer(rollouts())
    samples = trainer.samples()
    spoil(samples[0])
    with refused(code):
        trainer.update(samples)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
