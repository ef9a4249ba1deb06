"""What the trainer checks of every batch: it replays authorship and holds it against the mask."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_openrlhf.batch import JUNIOR_MASK, OpenRLHFRun
from tandem_openrlhf.numbering import KeyedLabel
from tandem_openrlhf.rollouts import RolloutActorInTandem, SharedCalls, narrowed
from tandem_plugin import (
    TandemConfig,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.training.authorship_wire import AUTHORSHIP

torch = pytest.importorskip("torch", reason="torch is not installed")

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
PROMPT, LENGTH, SAMPLES = [1, 2, 3], 30, 4


def trainer(**settings: Any) -> Any:
    config = TandemConfig.from_mapping(settings or {"schedule": "word", "cap": 4})
    args = SimpleNamespace(rollout=SimpleNamespace(n_samples_per_prompt=SAMPLES))
    return OpenRLHFRun(TandemRules(config, Vocabulary(PIECES, "a test")), args)


def sample(
    made: Any, prompt: int, number: int, length: int = LENGTH, most: int = 1000, masked: int = 0
) -> Any:
    """One response, generated and narrowed, as OpenRLHF makes an experience of it."""
    response = np.random.default_rng(number).integers(0, 24, length).tolist()

    class Engine:
        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=response)])

    trajectory = KeyedLabel("", prompt, samples=number).trajectory(made.rules)
    shared = SharedCalls()
    shared.begin(trajectory)
    engine = RolloutActorInTandem(Engine(), trajectory, shared)
    asyncio.run(engine.generate(PROMPT, SimpleNamespace(extra_args=None, n=1)))
    tokens = PROMPT + response
    whole = {
        "observation_tokens": tokens,
        "action_ranges": [(3 + masked, len(tokens))],
        "rollout_log_probs": [0.0] * 3 + [-1.0] * length,
    }
    result = narrowed(whole, trajectory, shared)
    mask = torch.zeros(len(tokens), dtype=torch.long)
    for start, stop in result["action_ranges"]:
        mask[start:stop] = 1
    made_of = SimpleNamespace(
        sequences=torch.tensor(tokens[:most]).unsqueeze(0),
        action_mask=mask[1:most].unsqueeze(0),
        rollout_log_probs=torch.tensor(result["rollout_log_probs"][1:most]).unsqueeze(0),
    )
    setattr(made_of, AUTHORSHIP, result[AUTHORSHIP])
    return made_of


def batch(made: Any, **options: Any) -> list[Any]:
    return [sample(made, i // SAMPLES, i % SAMPLES, **options) for i in range(2 * SAMPLES)]


@pytest.mark.parametrize("most", [1000, 12])  # which the trainer cuts off
@pytest.mark.parametrize("masked", [0, 4])  # by the agent, of a call's first tokens
def test_batch_of_narrowed_responses_is_admitted_and_measured(most: int, masked: int) -> None:
    made = trainer()
    samples = batch(made, most=most, masked=masked)
    metrics = made.admit(samples)
    trained = sum(int(one.action_mask.sum()) for one in samples)
    written = len(samples) * min(LENGTH, most - len(PROMPT))
    if masked:
        assert not any(bool(one.action_mask[0, : 2 + masked].any()) for one in samples)
    else:
        assert metrics["tandem/senior_share"] == pytest.approx(trained / written)
    assert not any(hasattr(one, JUNIOR_MASK) for one in samples)


def spoiled(column: str, change: Any) -> Any:
    """What changes a column of a sample, given the tokens that are trained."""

    def spoil(sample: Any) -> None:
        setattr(sample, column, change(sample, sample.action_mask[0] == 1))

    return spoil


def flipped(sample: Any, place: int) -> Any:
    mask = sample.action_mask.clone()
    mask[0, place] = 1 - mask[0, place]
    return mask


SPOILED = {
    "shorter": (
        spoiled("action_mask", lambda sample, _: sample.action_mask[:, :-1]),
        "row-field-length-differs",
    ),
    "of the prompt": (
        spoiled("action_mask", lambda sample, _: flipped(sample, 0)),
        "openrlhf-mask-before-response",
    ),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILED.values(), ids=SPOILED.keys())
def test_batch_that_is_not_tandems_stops_before_the_update(spoil: Any, code: str) -> None:
    made = trainer()
    samples = batch(made)
    spoil(samples[3])
    with refused(code):
        made.admit(samples)


def test_error_names_the_place_of_the_prompts_token() -> None:
    """OpenRLHF's masks leave the first token out."""
    made = trainer()
    samples = batch(made)
    spoiled("action_mask", lambda sample, _: flipped(sample, 1))(samples[3])
    with refused("openrlhf-mask-before-response", position=2, count=1):
        made.admit(samples)


def updated(samples: list[Any], *trained: int) -> Any:
    """Two samples in one experience, padded on the right, with further trained places."""
    wide = 1 + max(one.sequences.shape[1] for one in samples)

    def padded(name: str, width: int) -> torch.Tensor:
        rows = [getattr(one, name)[0] for one in samples]
        return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])

    mask = padded("action_mask", wide - 1)
    mask[0, list(trained)] = 1
    return SimpleNamespace(
        index=list(range(len(samples))), sequences=padded("sequences", wide), action_mask=mask
    )


@pytest.mark.parametrize("place", [0, LENGTH + len(PROMPT) - 1], ids=["prompt", "padding"])
def test_update_may_train_nothing_before_or_behind_a_response(place: int) -> None:
    made = trainer()
    samples = batch(made)
    made.admit(samples)
    made.check_experiences(
        [
            updated(samples[:2]),
        ]
    )
    with refused("row-not-checked"):
        made.check_experiences([updated(samples[:2], place)])
