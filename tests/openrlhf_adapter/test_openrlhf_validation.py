"""Who answers OpenRLHF's evaluation, and the names under which it is logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_openrlhf.patches.generation import ANSWERER, named_metrics, place_prompts
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.validation import answerers


def evaluated(answerer: str, reward: float) -> Any:
    return SimpleNamespace(**{ANSWERER: answerer}, reward=reward)


def mean(samples: Sequence[Any]) -> dict[str, float]:
    return {"eval_default_pass1": sum(sample.reward for sample in samples) / len(samples)}


def test_each_answerers_metrics_have_names_of_their_own() -> None:
    senior = [evaluated("senior", reward) for reward in (0.0, 1.0)]
    team = [evaluated("team", 1.0)]
    assert named_metrics(mean, senior) == {"eval_default_pass1": 0.5}
    assert named_metrics(mean, team) == {"team/eval_default_pass1": 1.0}
    assert named_metrics(mean, [*senior, *team]) == {
        "eval_default_pass1": 0.5,
        "team/eval_default_pass1": 1.0,
    }
    assert named_metrics(mean, []) == {}


@pytest.mark.parametrize("validation", ["senior", "team", "both"])
def test_every_prompt_is_walked_through_once_an_answerer(
    validation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SamplesGenerator:
        def generate_eval_samples(self, **options: Any) -> list[Any]:
            assert options == {"temperature": 0.6}
            return [SimpleNamespace(**key) for key in self.numbering.take(2)]  # type: ignore[attr-defined]

    monkeypatch.setenv(VARIABLE, json.dumps({"validation": validation}))
    module: Any = SimpleNamespace(SamplesGenerator=SamplesGenerator)
    for _ in range(2):
        place_prompts(module)
    assert module.SamplesGenerator.__mro__[1] is SamplesGenerator  # put in place once
    samples = module.SamplesGenerator().generate_eval_samples(temperature=0.6)
    walks = answerers(validation)
    assert [getattr(sample, ANSWERER) for sample in samples] == [w for w in walks for _ in "ab"]
    assert [sample.prompt for sample in samples] == [0, 1] * len(walks)
    assert [sample.by_team for sample in samples] == [w == "team" for w in walks for _ in "ab"]
