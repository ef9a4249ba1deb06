"""The example's game as OpenRLHF's agent, behind the adapter's engine: what of it is trained."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed")

sys.path.append(str(Path(__file__).parents[1]))

import players
from game import opening
from openrlhf_executor import AgentExecutor
from start import make_tokenizer

from tandem_openrlhf.trajectory import TandemEngine, narrowed
from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.authorship_wire import FACTS, Facts
from tandem_plugin.training.trajectory import Trajectory


class Actor:
    """OpenRLHF's rollout actor, with moves of a script in place of an engine."""

    def __init__(self, table: players.Table) -> None:
        self.table = table

    async def generate(self, prompt: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        said = self.table.answer(prompt, params)
        log_probs = [{token: SimpleNamespace(logprob=-0.5)} for token in said]
        return SimpleNamespace(
            outputs=[SimpleNamespace(index=0, token_ids=tuple(said), logprobs=log_probs)]
        )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


def played(tokenizer: Any, stones: int, said: list[str]) -> tuple[dict[str, Any], players.Table]:
    """The agent's response of one game, narrowed as the adapter does."""
    config = TandemConfig.from_mapping({"schedule": "solo", "seed": 3})
    rules = TandemRules(config, Vocabulary.from_tokenizer(tokenizer))
    rule_of = partial(rules.asked, training_step=1)
    trajectory = Trajectory(rules.default, partial(derive_seed, 3, "training"), rule_of)
    table = players.Table(tokenizer, said)
    prompt = tokenizer.apply_chat_template(
        opening(stones), add_generation_prompt=True, tokenize=False
    )
    shared = SimpleNamespace(max_tokens=99, extra_args=None, logprobs=1)
    response = asyncio.run(
        AgentExecutor().execute(
            prompt, str(stones), shared, 256, tokenizer, TandemEngine(Actor(table), trajectory)
        )
    )
    assert (shared.max_tokens, shared.extra_args) == (99, None)
    return narrowed(response, trajectory), table


def test_seniors_moves_alone_are_trained_and_both_schedules_are_told(tokenizer: Any) -> None:
    response, table = played(tokenizer, 6, ["three", "two", "one"])
    assert response["reward"] == response["scores"] == 1.0
    assert response["extra_logs"] == {"illegal": 0.0, "left": 0.0}
    tokens = response["observation_tokens"]
    trained = [tokens[start:stop] for start, stop in response["action_ranges"]]
    assert trained == [table.script[0], table.script[2]]
    facts = Facts.from_wire(response[FACTS])
    assert facts is not None
    assert [one and one[1]["schedule"] for one in facts.asked] == [None, "junior", None]
    assert [stop - start for _, start, stop in facts.segments] == list(map(len, table.script))
    log_probs = response["rollout_log_probs"]
    assert len(log_probs) == len(tokens)
    assert sum(log_probs) == -0.5 * sum(map(len, trained))
    sent = [params.extra_args["tandem"] for params in table.asked]
    assert [one["schedule"] for one in sent] == ["solo", "junior", "solo"]
    assert len({one["seed"] for one in sent}) == 3


@pytest.mark.parametrize("text", players.HOSTILE)
def test_hostile_move_of_either_player_decides_the_reward(text: str, tokenizer: Any) -> None:
    for said, reward in (([text], 0.0), (["two", text], 1.0)):
        response, table = played(tokenizer, 9, said)
        assert response["reward"] == reward
        assert response["extra_logs"]["illegal"] == 1.0
        ((start, stop),) = response["action_ranges"]
        assert response["observation_tokens"][start:stop] == table.script[0]
        assert response["observation_tokens"][-len(table.script[-1]) :] == table.script[-1]
