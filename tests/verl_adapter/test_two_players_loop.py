"""The example's game as verl's agent loop, behind the adapter's client: what of it is trained."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

sys.path.append(str(Path(__file__).parents[1]))

import players
from game import opening
from start import encode_messages, make_tokenizer
from verl_loop import TwoPlayers

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.authorship_wire import FACTS, Facts
from tandem_plugin.training.trajectory import Trajectory
from tandem_verl.agent_loop import TandemClient, narrow


class Server:
    """verl's client, with moves of a script in place of an engine."""

    def __init__(self, table: players.Table) -> None:
        self.table = table

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any:
        said = self.table.answer(prompt_ids, (request_id, sampling_params))
        return SimpleNamespace(
            token_ids=said, log_probs=[-0.5] * len(said), extra_fields={"engine": "its own"}
        )


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


def played(tokenizer: Any, stones: int, said: list[str]) -> tuple[Any, players.Table]:
    """The loop's output of one game, narrowed as the adapter does."""
    config = TandemConfig.from_mapping({"schedule": "solo", "seed": 3})
    rules = TandemRules(config, Vocabulary.from_tokenizer(tokenizer))
    rule_of = partial(rules.asked, training_step=1)
    trajectory = Trajectory(rules.default, partial(derive_seed, 3, "training"), rule_of)
    table = players.Table(tokenizer, said)
    loop = object.__new__(TwoPlayers)
    loop.tokenizer = tokenizer
    loop.server_manager = TandemClient(Server(table), trajectory)

    async def initial(messages: list[dict[str, str]]) -> list[int]:
        return encode_messages(messages, tokenizer)

    loop.ct_build_initial_tokens = initial
    row = {"raw_prompt": opening(stones), "reward_model": {"ground_truth": str(stones)}}
    output = asyncio.run(loop.run({"temperature": 1.0}, **row))
    narrow(output, trajectory)
    return output, table


def test_seniors_moves_alone_are_trained_and_both_schedules_are_told(tokenizer: Any) -> None:
    output, table = played(tokenizer, 6, ["three", "two", "one"])
    assert output.reward_score == 1.0
    assert output.extra_fields["engine"] == "its own"
    assert output.extra_fields["reward_extra_info"] == {"illegal": 0.0, "left": 0.0}
    trained = [
        token for token, bit in zip(output.response_ids, output.response_mask, strict=True) if bit
    ]
    assert trained == [*table.script[0], *table.script[2]]
    facts = Facts.from_wire(output.extra_fields[FACTS])
    assert facts is not None
    asked = [one and one[1]["schedule"] for one in facts.asked]
    assert asked == [None, "junior", None]
    assert [stop - start for _, start, stop in facts.segments] == list(map(len, table.script))
    assert output.response_logprobs == [-0.5 if bit else 0.0 for bit in output.response_mask]
    ids = {request_id for request_id, _ in table.asked}
    assert len(ids) == 1  # one server, whose cache holds the game so far
    sent = [params["extra_args"]["tandem"] for _, params in table.asked]
    assert [one["schedule"] for one in sent] == ["solo", "junior", "solo"]
    assert len({one["seed"] for one in sent}) == 3


@pytest.mark.parametrize("text", players.HOSTILE)
def test_hostile_move_of_either_player_decides_the_reward(text: str, tokenizer: Any) -> None:
    for said, reward in (([text], 0.0), (["two", text], 1.0)):
        output, table = played(tokenizer, 9, said)
        assert output.reward_score == reward
        assert output.extra_fields["reward_extra_info"]["illegal"] == 1.0
        assert sum(output.response_mask) == len(table.script[0])
        assert output.response_ids[-len(table.script[-1]) :] == table.script[-1]
