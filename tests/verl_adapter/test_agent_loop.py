"""Requests, seeds and narrowed masks of one trajectory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import (
    Rule,
    TandemConfig,
    TandemRequest,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.training.authorship_wire import FACTS, Facts
from tandem_verl.agent_loop import ROW, TandemClient, make_trajectory, narrow

VOCABULARY = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(24)), "a test")


def config(**settings: Any) -> TandemConfig:
    return TandemConfig.from_mapping({"schedule": "word", "cap": 4, "seed": 11, **settings})


def rules(settings: TandemConfig) -> TandemRules:
    return TandemRules(settings, VOCABULARY)


def rule(settings: TandemConfig) -> Rule:
    return rules(settings).default


def v1(row: int, session: int, step: int = 1, validate: bool = False) -> tuple[dict, dict]:
    trajectory = {"step": step, "sample_index": 0, "rollout_n": 0, "validate": validate}
    return trajectory, {ROW: row, "session_id": session, "index": 0, "uid": f"random {row}"}


def seeds(identities: list[tuple[dict, dict]], settings: TandemConfig) -> list[int]:
    ours = rules(settings)
    return [make_trajectory(ours, *identity).seed_of_call(0) for identity in identities]


def test_seeds_are_unique_and_reproducible_although_every_index_is_zero() -> None:
    identities = [
        v1(r, s, t, v) for r in range(8) for s in range(4) for t in (1, 2) for v in (False, True)
    ]
    first = seeds(identities, config())
    assert len(set(first)) == len(identities)
    for _, sample in identities:
        sample["uid"] = "another random name"
    assert seeds(identities, config()) == first
    assert not set(seeds(identities, config(seed=12))) & set(first)


def test_prompt_without_a_number_is_named_by_what_it_says() -> None:
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    samples = [
        {"session_id": session, "index": 0, "raw_prompt": [{"content": f"prompt {prompt}"}]}
        for prompt in range(3)
        for session in range(3)
    ]
    assert len(set(seeds([(trajectory, sample) for sample in samples], config()))) == 9


class Engine:
    """Stands for verl's client: remembers what it was sent, returns fixed tokens."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.name = "inner"

    async def generate(self, request_id: str, *, sampling_params: Any, **more: Any) -> Any:
        self.sent.append(sampling_params)
        first = len(self.sent) - 1  # no two answers begin alike
        return SimpleNamespace(token_ids=list(range(first, first + 10)))


def run(settings: TandemConfig, identity: tuple[dict, dict], calls: int = 1) -> Any:
    engine = Engine()
    trajectory = make_trajectory(rules(settings), *identity)
    client = TandemClient(engine, trajectory)
    shared = {"temperature": 1.0, "seed": 3, "extra_args": {"other": 1}}
    for _ in range(calls):
        asyncio.run(client.generate("id", prompt_ids=[1, 2], sampling_params=shared))
    assert shared == {"temperature": 1.0, "seed": 3, "extra_args": {"other": 1}}
    output = output_of(list(range(10)))
    narrow(output, trajectory)
    return SimpleNamespace(engine=engine, client=client, output=output, trajectory=trajectory)


def output_of(ids: list[int]) -> Any:
    """verl's output of one response, all of which its loop would train."""
    return SimpleNamespace(
        prompt_ids=[1, 2],
        response_ids=ids,
        response_mask=[1] * len(ids),
        response_logprobs=[-1.0] * len(ids),
        extra_fields={},
    )


def facts_of(output: Any) -> Facts:
    facts = Facts.from_wire(output.extra_fields[FACTS])
    assert facts is not None
    return facts


def test_every_call_carries_a_request_of_its_own_and_keeps_the_token_noise() -> None:
    settings = config()
    ran = run(settings, v1(3, 1), calls=3)
    requests = []
    for sent in ran.engine.sent:
        assert (sent["temperature"], sent["seed"], sent["extra_args"]["other"]) == (1.0, 3, 1)
        request = TandemRequest.parse(sent["extra_args"]["tandem"])
        assert request is not None
        assert request.fingerprint == rule(settings).fingerprint
        assert request.prompt_length == 2  # so that a client may go on with the response
        requests.append(request.seed)
    assert requests == [ran.trajectory.seed_of_call(call) for call in range(3)]
    assert len(set(requests)) == 3


def test_mask_keeps_the_seniors_tokens_and_the_whole_authorship_travels() -> None:
    settings = config()
    ran = run(settings, v1(3, 1))
    authorship = rule(settings).replay(list(range(10)), ran.trajectory.seed_of_call(0)).tolist()
    assert 0 < sum(authorship) < 10
    assert ran.output.response_mask == authorship
    assert ran.output.extra_fields.keys() == {FACTS}
    facts = facts_of(ran.output)
    assert facts.authorship.astype(int).tolist() == authorship
    assert facts.seed == ran.trajectory.seed_of_call(0)
    assert facts.fingerprint == rule(settings).fingerprint
    assert facts.settings == {"schedule": "word", "p": 0.5, "cap": 4, "boundaries": "word"}
    assert facts.segments == ((ran.trajectory.seed_of_call(0), 0, 10),)
    assert facts.trained == ((0, 10),)


def test_validation_is_the_senior_alone_unless_the_team_is_asked_for() -> None:
    identity = v1(3, 1, validate=True)
    ran = run(config(), identity)
    assert ran.engine.sent[0]["extra_args"] == {"other": 1, "tandem": "off"}
    assert ran.output.response_mask == [1] * 10
    assert ran.output.extra_fields == {}
    ran = run(config(validation="team"), identity)
    assert TandemRequest.parse(ran.engine.sent[0]["extra_args"]["tandem"]) is not None
    assert facts_of(ran.output).length == 10


def test_client_is_otherwise_verls_own() -> None:
    assert run(config(), v1(0, 0)).client.name == "inner"


@pytest.mark.parametrize("gathered", [[0, 1, 2], [2, 0, 1]])
def test_sample_that_a_loop_keeps_of_several_has_its_own_authors(gathered: list[int]) -> None:
    """They begin alike, and come back in another order than they were asked for."""
    settings = config()
    samples = [[4, 5, 6, 7, 8, last] for last in (9, 10, 11)]
    returned: list[int] = []

    class Sampling:
        async def generate(self, request_id: int, **asked: Any) -> Any:
            while gathered[len(returned)] != request_id:
                await asyncio.sleep(0)
            returned.append(request_id)
            return SimpleNamespace(token_ids=samples[request_id])

    trajectory = make_trajectory(rules(settings), *v1(3, 1))
    client = TandemClient(Sampling(), trajectory)

    async def sample() -> None:
        asked = {"prompt_ids": [1, 2], "sampling_params": {}}
        await asyncio.gather(*(client.generate(number, **asked) for number in range(3)))

    asyncio.run(sample())
    for kept, ids in enumerate(samples):
        output = output_of(ids)
        narrow(output, trajectory)
        seed = trajectory.seed_of_call(kept)
        assert output.response_mask == rule(settings).replay(ids, seed).tolist()
        assert facts_of(output).segments == ((seed, 0, 6),)


@pytest.mark.parametrize("n", [None, 1, 2])
def test_several_samples_in_one_call_are_refused(n: int | None) -> None:
    engine, settings = Engine(), config()
    client = TandemClient(engine, make_trajectory(rules(settings), *v1(3, 1)))
    asked = client.generate("id", prompt_ids=[1], sampling_params={"n": n})
    if n == 2:
        with refused("TP501", samples=2):
            asyncio.run(asked)
    else:
        asyncio.run(asked)
    assert len(engine.sent) == (n != 2)


def test_tokens_that_two_calls_could_have_written_are_neither_trained_nor_imitated() -> None:
    settings = TandemConfig.from_mapping({"schedule": "token", "seed": 11})
    trajectory = make_trajectory(rules(settings), *v1(3, 1))
    for n in range(2):
        trajectory.call([1, 2]).returned([4, 5, 6, 7, n])
    output = output_of([4, 5, 6, 7])
    narrow(output, trajectory)
    replay = rules(settings).default.replay
    both = [replay(output.response_ids, trajectory.seed_of_call(n)).senior for n in range(2)]
    agreed = both[0] == both[1]
    assert 0 < agreed.sum() < 4
    facts = facts_of(output)
    assert facts.unknown_mask.tolist() == (~agreed).tolist()
    assert output.response_mask == (agreed & both[0]).astype(int).tolist()
    assert facts.junior_mask.tolist() == (agreed & ~both[0]).tolist()
    assert output.response_logprobs == np.where(agreed & both[0], -1.0, 0.0).tolist()
    output = output_of([4, 5, 6, 7])
    output.response_mask = [0] * 4
    narrow(output, trajectory)
    assert not facts_of(output).authorship.any()
    assert not facts_of(output).unknown_mask.any()


def test_log_probs_are_zero_where_the_junior_wrote_and_none_where_verl_has_none() -> None:
    ran = run(config(), v1(3, 1))
    assert 0 < sum(ran.output.response_mask) < 10
    assert ran.output.response_logprobs == [-float(bit) for bit in ran.output.response_mask]
    for log_probs in (None, [-1.0] * 9):
        output = output_of(list(range(10)))
        output.response_logprobs = log_probs
        if log_probs is None:
            narrow(output, ran.trajectory)
            assert output.response_logprobs is None
        else:
            with refused("TP431", log_probs=9, tokens=10):
                narrow(output, ran.trajectory)


def test_senior_that_answers_alone_keeps_its_log_probs() -> None:
    assert run(config(), v1(3, 1, validate=True)).output.response_logprobs == [-1.0] * 10


def juniors(identities: list[tuple[dict, dict]], *names: str) -> list[str | None]:
    ours = rules(config(junior=list(names)) if names else config())
    return [make_trajectory(ours, *identity).junior for identity in identities]


def test_prompts_take_the_juniors_in_turns_and_their_responses_share_one() -> None:
    found = juniors([v1(row, session, 5) for row in range(4) for session in range(3)], "a", "b")
    assert found == ["b"] * 3 + ["a"] * 3 + ["b"] * 3 + ["a"] * 3
    # Another one in the next step; at validation the same one each time.
    assert juniors([v1(0, 0, step) for step in (1, 2, 3)], "a", "b") == ["b", "a", "b"]
    assert juniors([v1(1, 0, step, True) for step in (1, 2, 3)], "a", "b") == ["b"] * 3
    assert juniors([v1(0, 0), v1(1, 0)]) == [None, None]


def test_prompts_without_a_number_are_dealt_out_by_what_they_say() -> None:
    """So by an agent-loop manager that hands out prompts in a way of its own."""
    prompts = []
    for number in range(40):
        trajectory, sample = v1(0, number % 4)
        del sample[ROW]
        sample["raw_prompt"] = [{"content": f"prompt {number // 4}"}]
        prompts.append((trajectory, sample))
    found = juniors(prompts, "a", "b")
    groups = [set(found[i : i + 4]) for i in range(0, 40, 4)]
    assert [len(group) for group in groups] == [1] * 10
    assert set.union(*groups) == {"a", "b"}
    assert found == juniors(prompts, "a", "b")
