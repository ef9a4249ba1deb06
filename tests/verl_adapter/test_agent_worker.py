"""An agent-loop worker in tandem on a stand-in for verl's: what is sent, and what comes back."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

pytest.importorskip("verl", reason="verl is not installed")

from verl_stand_ins import (
    IN_TANDEM,
    PLAIN,
    TOKENIZER,
    OmegaConf,
    tandem_of,
    torch,
)

from tandem_plugin import RequestError, TandemRequest
from tandem_plugin.patching.mixins import in_tandem
from tandem_plugin.training.authorship_wire import FACTS, Facts
from tandem_verl.agent_loop import WorkerInTandem


class Output(SimpleNamespace):
    """verl's AgentLoopOutput, as far as the worker sees it."""


class Client:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[Any] = []

    async def generate(self, request_id: str, *, sampling_params: Any, **more: Any) -> Any:
        self.sent.append(sampling_params)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(token_ids=list(range(10)))


class Worker:
    """verl's AgentLoopWorker, as far as the worker in tandem sees it."""

    def __init__(self, config: Any, client: Client) -> None:
        self.config, self.llm_client, self.tokenizer = config, client, TOKENIZER

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **sample: Any) -> Any:
        generated = await self.llm_client.generate(
            "id", prompt_ids=[1, 2], sampling_params=sampling_params
        )
        ids = generated.token_ids
        output = Output(
            prompt_ids=[1, 2],
            response_ids=ids,
            response_mask=[1] * len(ids),
            response_logprobs=None,
            extra_fields={},
        )
        return await self._agent_loop_postprocess(output, trajectory["validate"], **sample)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any:
        assert "tandem_row" not in sample
        return output


def facts_of(output: Any) -> Facts:
    facts = Facts.from_wire(output.extra_fields[FACTS])
    assert facts is not None
    return facts


def run_one(config: Any, client: Client, **sample: Any) -> Any:
    worker = in_tandem(Worker, WorkerInTandem)(config, client)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    return asyncio.run(worker._run_agent_loop({"n": 1}, trajectory=trajectory, **sample))


def test_tandem_run_sends_requests_and_narrows_the_mask() -> None:
    client = Client()
    output = run_one(IN_TANDEM, client, session_id=0, tandem_row=3)
    assert TandemRequest.parse(client.sent[0]["extra_args"]["tandem"]) is not None
    authors = facts_of(output).authorship.astype(int).tolist()
    assert output.response_mask == authors
    assert 0 < sum(authors) < 10


def test_call_of_a_loop_has_the_schedule_that_it_asks_for() -> None:
    """Here in every call, as a user's ``sampling_params`` would have it: nothing is trained."""
    client = Client()
    worker = in_tandem(Worker, WorkerInTandem)(IN_TANDEM, client)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    asked = {"extra_args": {"tandem": {"schedule": "junior"}, "mine": 1}}
    sample = {"session_id": 0, "tandem_row": 3}
    output = asyncio.run(worker._run_agent_loop(asked, trajectory=trajectory, **sample))
    sent = client.sent[0]["extra_args"]
    request = TandemRequest.parse(sent["tandem"])
    assert request is not None
    assert (request.schedule, sent["mine"]) == ("junior", 1)
    assert asked["extra_args"]["tandem"] == {"schedule": "junior"}  # siblings share it
    assert not any(output.response_mask)
    assert facts_of(output).asked == (
        (request.fingerprint, {"schedule": "junior", "boundaries": "every"}),
    )


def test_call_that_asks_for_a_seed_of_its_own_stops_the_run() -> None:
    worker = in_tandem(Worker, WorkerInTandem)(IN_TANDEM, Client())
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    asked = {"extra_args": {"tandem": {"schedule": "junior", "seed": 1}}}
    output = asyncio.run(worker._run_agent_loop(asked, trajectory=trajectory, session_id=0))
    assert "gives 'seed' to one of its calls" in output.extra_fields["tandem_error"]


def test_error_reaches_the_trainer_although_verl_only_logs_errors() -> None:
    output = run_one(IN_TANDEM, Client(RequestError("the engine says no")), session_id=0, uid="u")
    assert output.extra_fields["tandem_error"] == "RequestError: the engine says no"
    assert not any(output.response_mask)


def test_error_is_not_dropped_with_prompts_whose_scores_are_all_equal() -> None:
    scores = [
        run_one(IN_TANDEM, Client(RequestError("no")), session_id=i, uid="u").reward_score
        for i in range(2)
    ]
    assert np.std(scores) != 0  # verl's own condition


@pytest.mark.parametrize("metric", ["reward", "acc"])
@pytest.mark.parametrize("failed", [1, 2])
def test_error_is_not_hidden_where_prompts_are_filtered_by_a_metric(
    metric: str, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's own buffer keeps the prompt, so that the trainer is given the error."""
    buffers = pytest.importorskip("verl.trainer.ppo.v1.replay_buffer", reason="verl is missing")
    filtering = OmegaConf.merge(IN_TANDEM, {"algorithm": {"filter_groups": {"metric": metric}}})
    fails = Client(RequestError("the engine says no"))
    outputs = [run_one(filtering, fails, session_id=i, uid="u") for i in range(failed)]
    outputs += [
        SimpleNamespace(reward_score=0.5, extra_fields={"reward_extra_info": {"acc": 0.5}})
        for _ in range(failed, 2)
    ]
    rows = {
        "rm_scores": [torch.tensor([output.reward_score]) for output in outputs],
        "extra_fields": [output.extra_fields for output in outputs],
    }
    monkeypatch.setattr(buffers.tq, "kv_batch_get", lambda **selected: rows)
    buffer = object.__new__(buffers.ReplayBuffer)
    buffer.filter_groups_metric = metric
    buffer.finished_keys = {"train": {"u"}}
    buffer.partitions = {"train": {"u_0_0": {}, "u_1_0": {}}}
    buffer._dapo_classification_cache = {"train": {}}
    dropped, _ = buffer._dapo_filtered_keys("train")
    assert dropped == set()
    rows["rm_scores"] = [torch.tensor([0.5])] * 2
    rows["extra_fields"] = [{"reward_extra_info": {"acc": 0.5}}] * 2
    buffer._dapo_classification_cache = {"train": {}}
    assert buffer._dapo_filtered_keys("train")[0] == {"u"}  # equal scores are dropped


class InterruptedClient(Client):
    """Goes on with a response that is interrupted as verl's FullyAsyncLLMServerClient does.

    It stands for the engine as well: what the engine decides of each part is in ``authors``.
    """

    def __init__(self, cuts: list[int]) -> None:
        super().__init__()
        self.cuts, self.authors = cuts, []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **more: Any
    ) -> Any:
        tandem, token_ids = tandem_of(IN_TANDEM), list(range(20))
        for start, stop in itertools.pairwise([0, *self.cuts, 20]):
            self.sent.append(sampling_params)
            resolved = tandem.rules.for_request(sampling_params["extra_args"]["tandem"])
            prefix = resolved.prefix(prompt_ids + token_ids[:start])
            assert prefix == token_ids[:start]
            part = resolved.rule.replay_rest(prefix, token_ids[start:stop], resolved.seed)
            self.authors += part.tolist()
        return SimpleNamespace(token_ids=token_ids)


@pytest.mark.parametrize("cuts", [[], [7], [0, 1, 2], [5, 5, 19], [20]])
def test_authorship_of_an_interrupted_response_is_that_of_its_parts(cuts: list[int]) -> None:
    client = InterruptedClient(cuts)
    output = run_one(IN_TANDEM, client, session_id=0, tandem_row=3)
    facts = facts_of(output)
    assert len(client.sent) == len(cuts) + 1
    assert facts.authorship.tolist() == client.authors
    assert 0 < facts.authorship.sum() < 20
    assert facts.segments == ((facts.seed, 0, 20),)


def test_other_errors_are_verls_business() -> None:
    with pytest.raises(ValueError, match="too long"):
        run_one(IN_TANDEM, Client(ValueError("too long")), session_id=0)


def test_worker_says_that_it_is_in_place_and_what_is_wrong_before_anything_is_generated() -> None:
    ours = in_tandem(Worker, WorkerInTandem)
    assert ours(IN_TANDEM, Client()).tandem_in_place() is True
    with refused("TP530"):
        ours(PLAIN, Client()).tandem_in_place()


def test_users_own_way_through_a_trajectory_is_narrowed_as_well() -> None:
    """A worker class of theirs may replace ``_run_agent_loop``, and give several outputs."""

    class Own(Worker):
        async def _run_agent_loop(
            self, sampling_params: Any, trajectory: Any, **sample: Any
        ) -> Any:
            answer = await self.llm_client.generate(
                "id", prompt_ids=[1, 2], sampling_params=sampling_params
            )
            ids = answer.token_ids
            output = Output(prompt_ids=[1, 2], response_ids=ids, response_mask=[0, 0] + [1] * 8)
            output.response_logprobs, output.extra_fields = None, {}
            return await self._agent_loop_postprocess([output], trajectory["validate"], **sample)

    worker = in_tandem(Own, WorkerInTandem)(IN_TANDEM, Client())
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    run = worker._run_agent_loop({"n": 1}, trajectory, session_id=0, tandem_row=3)
    (output,) = asyncio.run(run)
    authors = facts_of(output).authorship.astype(int).tolist()
    assert 0 < sum(authors[2:]) < 8
    assert output.response_mask == [0, 0, *authors[2:]]
