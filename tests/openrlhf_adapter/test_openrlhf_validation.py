"""Who answers OpenRLHF's evaluation, and the names under which it is logged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_openrlhf.patches.generation import Generator, named_metrics
from tandem_plugin.patching.subclasses import in_place_of
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.numbered_prompts import KeyedLabel
from tandem_plugin.training.validation import ANSWERER, answerers


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
    class SamplesGenerator:
        def generate_eval_samples(self, **options: Any) -> list[Any]:
            assert options == {"temperature": 0.6}
            return self._dispatch_prompts_to_vllm(["p", "q"], ["a", "b"], images=None)

        def _process_response_into_experience(self) -> None: ...

        def _dispatch_prompts_to_vllm(self, prompts: Any, labels: Any, **more: Any) -> list[Any]:
            assert (prompts, more) == (["p", "q"], {"images": None})
            return [SimpleNamespace(key=label) for label in labels]

    monkeypatch.setenv(VARIABLE, json.dumps({"validation": validation}))
    module: Any = SimpleNamespace(SamplesGenerator=SamplesGenerator)
    for _ in range(2):
        in_place_of("SamplesGenerator", Generator)(module)
    assert module.SamplesGenerator.__bases__ == (Generator, SamplesGenerator)  # put in place once
    generator = module.SamplesGenerator()
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
