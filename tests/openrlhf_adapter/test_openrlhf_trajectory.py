"""What is asked of the engine in one trajectory, and what is made of the response."""

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
from tandem_plugin.training.trajectory import KeyedLabel, Trajectory

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
PROMPT = [1, 2, 3]


def rules(**settings: Any) -> TandemRules:
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 4, "seed": 9, **settings})
    return TandemRules(config, Vocabulary(PIECES, "a test"))


def parameters(**fields: Any) -> Any:
    return SimpleNamespace(**{"extra_args": None, "max_tokens": 8, **fields})


def outputs_of(*samples: list[int], first: int = 0) -> Any:
    """vLLM's ``RequestOutput`` of these samples, numbered from ``first``."""
    numbered = enumerate(samples, first)
    return SimpleNamespace(
        outputs=[SimpleNamespace(index=index, token_ids=ids) for index, ids in numbered]
    )


class Engine:
    """Answers with given tokens and remembers what it was asked."""

    def __init__(self, *answers: list[int]) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.llm = "the engine's own"

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        self.asked.append(params.extra_args)
        return outputs_of(self.answers.pop(0))


def begun(made: TandemRules, prompt: int = 0, by_team: bool = True) -> Trajectory:
    """A trajectory of the run with these rules, as its executor begins one."""
    return KeyedLabel("", "training", prompt, by_team=by_team).trajectory(made)


def call(trajectory: Trajectory, engine: Any, prompt: list[int] = PROMPT, **fields: Any) -> Any:
    """What the engine answers to one generate call of the trajectory."""
    return asyncio.run(TandemEngine(engine, trajectory).generate(prompt, parameters(**fields)))


def facts_of(response: Any) -> Facts:
    facts = Facts.from_wire(response[FACTS])
    assert facts is not None
    return facts


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 24, count).tolist()


def single(prompt: list[int], response: list[int], log_probs: bool = True) -> dict[str, Any]:
    both = prompt + response
    return {
        "observation_tokens": both,
        "action_ranges": [(len(prompt), len(both))],
        "rollout_log_probs": [0.0] * len(prompt) + [-1.0] * len(response) if log_probs else None,
        "reward": 1.0,
    }


class Sampling:
    """Returns several samples of one call, all at once or one of them, as vLLM streams them."""

    def __init__(self, *samples: list[int], first: int = 0) -> None:
        self.output = outputs_of(*samples, first=first)

    async def generate(self, prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        return self.output


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_sample_that_the_agent_keeps_of_several_has_its_own_authors(kept: int) -> None:
    """Asked for in calls of their own, or in one call with n above 1; they begin alike."""
    made = rules()
    samples = [[4, 5, 6, 7, 8, last] for last in (9, 10, 11)]
    first = derive_seed(9, "training", 0, 0, 0)
    own = derive_seed(9, "training", 0, 0, kept)
    for engine, calls, seed in (
        (Engine(*samples), 3, own),
        (Sampling(*samples), 1, sample_seed(first, kept)),
        (Sampling(samples[kept], first=kept), 1, sample_seed(first, kept)),
    ):
        trajectory = begun(made)
        for _ in range(calls):
            call(trajectory, engine)
        result = narrowed(single(PROMPT, samples[kept]), trajectory)
        senior = made.default.replay(samples[kept], seed).senior
        assert bits_of(result["action_ranges"], 9)[3:].tolist() == senior.tolist()
        assert facts_of(result).segments == ((seed, 3, 9),)


@pytest.mark.parametrize("trained", [((3, 9),), ((3, 5), (7, 12)), ((0, 4),), ((9, 9),), ()])
@pytest.mark.parametrize("most", [4, 8, 20])
def test_length_is_openrlhfs_own_of_the_whole_mask(
    trained: tuple[tuple[int, int], ...], most: int
) -> None:
    """First to last trained token, the sequence's first token being no action."""
    ones = np.flatnonzero(bits_of(trained, 20)[1:most])
    expected = int(ones[-1] - ones[0] + 1) if ones.size else 0
    assert response_length(Facts("", {}, 0, 20, (), (), trained), most) == expected
