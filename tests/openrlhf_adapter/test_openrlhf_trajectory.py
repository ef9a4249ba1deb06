"""What is its own in OpenRLHF's trajectories: samples of one call, and lengths of responses."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_openrlhf.trajectory import TandemEngine, narrowed, response_length
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.training.authorship_wire import FACTS, Facts, bits_of
from tandem_plugin.training.trajectory import KeyedLabel

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
RULES = TandemRules(TandemConfig.from_mapping({"cap": 4, "seed": 9}), Vocabulary(PIECES, "a test"))
PROMPT = [1, 2, 3]


class Engine:
    """Answers each call with the next samples, numbered as vLLM does."""

    def __init__(self, *answers: dict[int, list[int]]) -> None:
        self.answers = iter(answers)

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        samples = next(self.answers).items()
        outputs = [SimpleNamespace(index=index, token_ids=ids) for index, ids in samples]
        return SimpleNamespace(outputs=outputs)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_sample_that_the_agent_keeps_of_several_has_its_own_authors(kept: int) -> None:
    """Asked for in calls of their own, or in one call with n above 1; they begin alike."""
    samples = [[4, 5, 6, 7, 8, last] for last in (9, 10, 11)]
    first, own = (derive_seed(9, "training", 0, 0, call) for call in (0, kept))
    for answers, seed in (
        ([{0: one} for one in samples], own),
        ([dict(enumerate(samples))], sample_seed(first, kept)),
        ([{kept: samples[kept]}], sample_seed(first, kept)),  # as vLLM streams them
    ):
        trajectory = KeyedLabel("", "training", 0).trajectory(RULES)
        engine = TandemEngine(Engine(*answers), trajectory)
        for _ in answers:
            asyncio.run(engine.generate(PROMPT, SimpleNamespace(extra_args=None)))
        tokens = PROMPT + samples[kept]
        result = narrowed(
            {"observation_tokens": tokens, "action_ranges": [(3, len(tokens))]}, trajectory
        )
        senior = RULES.default.replay(samples[kept], seed).tolist()
        assert bits_of(result["action_ranges"], 9)[3:].tolist() == senior
        facts = Facts.from_wire(result[FACTS])
        assert facts is not None
        assert facts.segments == ((seed, 3, 9),)


@pytest.mark.parametrize("trained", [((3, 9),), ((3, 5), (7, 12)), ((0, 4),), ()])
@pytest.mark.parametrize("most", [4, 20])
def test_length_is_openrlhfs_own_of_the_whole_mask(
    trained: tuple[tuple[int, int], ...], most: int
) -> None:
    """First to last trained token, the sequence's first token being no action."""
    ones = np.flatnonzero(bits_of(trained, 20)[1:most])
    expected = int(ones[-1] - ones[0] + 1) if ones.size else 0
    assert response_length(Facts("", {}, 0, 20, (), (), trained), most) == expected
