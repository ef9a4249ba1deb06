"""What the trainer checks of every batch: it replays authorship and holds it against the mask."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_openrlhf.trainer import TandemTrainer
from tandem_openrlhf.trajectory import TandemEngine, narrowed
from tandem_plugin import (
    TandemConfig,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.lab.rollouts.rollout import read_rollouts
from tandem_plugin.training.authorship_wire import FACTS, JUNIOR_MASK
from tandem_plugin.training.numbered_prompts import KeyedLabel

torch = pytest.importorskip("torch", reason="torch is not installed")

PIECES = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
PROMPT, LENGTH, SAMPLES = [1, 2, 3], 30, 4


def trainer(estimator: str = "group_norm", samples: int = SAMPLES, **settings: Any) -> Any:
    config = TandemConfig.from_mapping(settings or {"schedule": "word", "cap": 4})
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=samples),
        algo=SimpleNamespace(advantage=SimpleNamespace(estimator=estimator)),
    )
    return TandemTrainer(config, TandemRules(config, Vocabulary(PIECES, "a test")), args)


def sample(
    made: Any, prompt: int, number: int, length: int = LENGTH, most: int = 1000, masked: int = 0
) -> Any:
    """One response, generated and narrowed, as OpenRLHF makes an experience of it."""
    response = np.random.default_rng(number).integers(0, 24, length).tolist()

    class Engine:
        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(outputs=[SimpleNamespace(index=0, token_ids=response)])

    trajectory = KeyedLabel("", "training", prompt, samples=number).trajectory(made.rules)
    engine = TandemEngine(Engine(), trajectory)
    asyncio.run(engine.generate(PROMPT, SimpleNamespace(extra_args=None, n=1)))
    tokens = PROMPT + response
    whole = {
        "observation_tokens": tokens,
        "action_ranges": [(3 + masked, len(tokens))],
        "rollout_log_probs": [0.0] * 3 + [-1.0] * length,
    }
    result = narrowed(whole, trajectory)
    mask = torch.zeros(len(tokens), dtype=torch.long)
    for start, stop in result["action_ranges"]:
        mask[start:stop] = 1
    made_of = SimpleNamespace(
        sequences=torch.tensor(tokens[:most]).unsqueeze(0),
        action_mask=mask[1:most].unsqueeze(0),
        rollout_log_probs=torch.tensor(result["rollout_log_probs"][1:most]).unsqueeze(0),
    )
    setattr(made_of, FACTS, result[FACTS])
    return made_of


def batch(made: Any, **options: Any) -> list[Any]:
    return [sample(made, i // SAMPLES, i % SAMPLES, **options) for i in range(2 * SAMPLES)]


def test_batch_of_narrowed_responses_is_admitted_and_measured() -> None:
    made = trainer()
    samples = batch(made)
    made.admit(samples)
    masks = [np.asarray(s.action_mask[0][2:]) for s in samples]
    senior, tokens = sum(mask.sum() for mask in masks), len(samples) * LENGTH
    handoffs = sum(np.count_nonzero(mask[1:] != mask[:-1]) for mask in masks)
    assert made.metrics == {
        "tandem/senior_share": pytest.approx(senior / tokens),
        "tandem/spans_per_response": pytest.approx(handoffs / len(samples) + 1),
        "tandem/handoffs_per_response": pytest.approx(handoffs / len(samples)),
        "tandem/responses_without_senior": sum(not mask.any() for mask in masks),
        "tandem/prompts_without_senior": 0,
        "tandem/tokens_of_unknown_author": 0,
    }


def test_response_cut_off_by_the_trainer_is_admitted() -> None:
    made = trainer()
    made.admit(batch(made, most=12))


def test_response_whose_first_tokens_the_agent_masks_is_replayed_from_its_first() -> None:
    made = trainer()
    samples = batch(made, masked=4)
    assert not any(bool(s.action_mask[0, : 2 + 4].any()) for s in samples)
    made.admit(samples)


@pytest.mark.parametrize("most", [1000, 12])
def test_samples_are_told_the_juniors_tokens_once_they_are_admitted(most: int) -> None:
    made = trainer(schedule="word", cap=4, lambda_jun=0.1)
    samples = batch(made, most=most, masked=4)
    made.admit(samples)
    for one in samples:
        junior = getattr(one, JUNIOR_MASK)
        assert junior.dtype == torch.int64
        trained = torch.zeros_like(one.action_mask)
        trained[:, 2 + 4 :] = 1
        assert (junior + one.action_mask).equal(trained)
    assert not any(hasattr(one, JUNIOR_MASK) for one in admitted(trainer()))


def admitted(made: Any) -> list[Any]:
    samples = batch(made)
    made.admit(samples)
    return samples


def test_response_of_the_junior_alone_is_counted_beside_others() -> None:
    made = trainer(p=0.5)
    samples = batch(made, length=2)
    without = [not bool(s.action_mask.any()) for s in samples]
    assert 0 < sum(without[:SAMPLES]) < SAMPLES
    assert sum(without[SAMPLES:]) < SAMPLES
    made.admit(samples)
    assert made.metrics["tandem/responses_without_senior"] == sum(without)


@pytest.mark.parametrize("estimator", ["group_norm", "flash_reinforce"])
def test_prompt_without_any_token_of_the_seniors_is_counted_beside_others(estimator: str) -> None:
    made = trainer(estimator, p=0.3)
    prompts = range(12)
    samples = [sample(made, i, j, length=1) for i in prompts for j in range(SAMPLES)]
    trained = [bool(one.action_mask.any()) for one in samples]
    without = sum(not any(trained[i * SAMPLES : (i + 1) * SAMPLES]) for i in prompts)
    assert 0 < without < 12
    assert made.admit(samples)["tandem/prompts_without_senior"] == without


def test_batch_without_any_token_of_the_seniors_stops_the_run() -> None:
    made = trainer(schedule="junior")
    with refused("TP418", responses=8):
        made.admit(batch(made))


def _forget(made: Any) -> None:
    delattr(made, FACTS)


def _shorten(made: Any) -> None:
    made.action_mask = made.action_mask[:, :-1]


def _reveal(made: Any) -> None:
    made.rollout_log_probs[0, made.action_mask[0] == 0] = -1.0


def _drop(made: Any) -> None:
    made.action_mask[0, torch.where(made.action_mask[0] == 1)[0][0]] = 0


def _prompt(made: Any) -> None:
    made.action_mask[0, 0] = 1


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_forget, "TP406"),
        (_shorten, "TP415"),
        (_drop, "TP416"),
        (_prompt, "TP612"),
        (_reveal, "TP433"),
    ],
)
def test_batch_that_is_not_tandems_stops_before_the_update(spoil: Any, code: str) -> None:
    made = trainer()
    samples = batch(made)
    spoil(samples[3])
    with refused(code):
        made.admit(samples)
    assert made.metrics == {}


def test_mask_with_a_juniors_token_stops_before_the_update() -> None:
    made = trainer()
    samples = batch(made)
    holes = torch.where(samples[0].action_mask[0][2:] == 0)[0]
    samples[0].action_mask[0, 2 + int(holes[0])] = 1
    with refused("TP416", name="response_mask", author="senior"):
        made.admit(samples)


def test_responses_generated_under_other_rules_stop_before_the_update() -> None:
    with refused("TP408"):
        trainer(schedule="word", cap=5).admit(batch(trainer()))


def test_dumped_responses_of_a_step_are_rollouts_whose_authorship_is_their_replay(
    tmp_path: Path,
) -> None:
    made = trainer(schedule="word", cap=4, rollouts=str(tmp_path / "rollouts"))
    samples = batch(made)
    for i, one in enumerate(samples):
        one.prompts, one.labels = [f"prompt {i // SAMPLES}"], [str(i)]
        one.rewards = torch.tensor([i / 4])
    made.admit(samples)
    made.dump(samples, 3, lambda ids: f"{len(ids)} tokens")
    rows: list[Any] = list(read_rollouts(tmp_path / "rollouts" / "3.jsonl"))
    assert [row.fields["score"] for row in rows] == [i / 4 for i in range(len(samples))]
    assert [row.fields["gts"] for row in rows] == [str(i) for i in range(len(samples))]
    for row in rows:
        assert row.fields["output"] == f"{LENGTH} tokens"
        assert row.fields["step"] == 3
        replayed = made.rules.default.replay(row.response_ids, row.seed)
        assert row.authorship == replayed.tolist()
        assert row.fingerprint == made.rules.default.fingerprint


def test_nothing_is_dumped_unless_the_run_says_where() -> None:
    made = trainer()
    samples = batch(made)
    made.admit(samples)
    made.dump(samples, 3, lambda ids: "")  # the samples have no prompts to tell
