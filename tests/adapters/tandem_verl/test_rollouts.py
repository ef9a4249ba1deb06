"""verl's agent-loop workers in tandem: requests, seeds, narrowed masks, errors."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from made_pictures import picture
from omegaconf import OmegaConf
from refused import refused
from verl.trainer.ppo.v1 import replay_buffer
from verl_stand_ins import IN_TANDEM, PLAIN, TOKENIZER

from tandem_plugin import RequestError, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship
from tandem_plugin.training.calls import Trajectory
from tandem_verl.rollouts import (
    ANSWERER,
    ROW,
    ManagerInTandem,
    TandemClient,
    WorkerInTandem,
    make_trajectory,
    narrow,
)

VOCABULARY = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(24)), "a test")


def rules(**settings: Any) -> TandemRules:
    given = {"schedule": "word", "cap": 4, "seed": 11, **settings}
    return TandemRules(TandemConfig.from_mapping(given), VOCABULARY)


RULES = rules()


def begun(
    row: int = 3,
    session: int = 1,
    step: int = 1,
    validate: bool = False,
    made: TandemRules = RULES,
    **sample: Any,
) -> Trajectory:
    """A response as trainer V1 names it."""
    trajectory = {"step": step, "sample_index": 0, "rollout_n": 0, "validate": validate}
    named = {"session_id": session, "index": 0, ROW: row, **sample}
    return make_trajectory(made, trajectory, named)


def test_seeds_are_unique_and_reproducible_although_every_index_is_zero() -> None:
    identities = list(itertools.product(range(8), range(4), (1, 2), (False, True)))

    def seeds(made: TandemRules, uid: str) -> list[int]:
        return [begun(*one, made=made, uid=uid).seed_of_call(0) for one in identities]

    first = seeds(RULES, "a random name")
    assert len(set(first)) == len(identities)
    assert seeds(RULES, "another random name") == first
    assert not set(seeds(rules(seed=12), "")) & set(first)


def test_pictures_are_checked_before_a_call_is_sent() -> None:
    sent = []

    class Server:
        async def generate(self, request_id: str, **call: Any) -> Any:
            sent.append(call["image_data"])
            return SimpleNamespace(token_ids=[4, 5])

    def answer(*pictures: Any) -> Any:
        trajectory = begun()
        trajectory.images = True
        client = TandemClient(Server(), trajectory)
        call = client.generate("a", prompt_ids=[1], sampling_params={}, image_data=list(pictures))
        return asyncio.run(call)

    plain, turned = picture(), picture()
    turned.getexif()[0x0112] = 6
    assert answer(plain).token_ids == [4, 5]
    with refused("picture-not-upright", orientation=6):
        answer(plain, turned)
    with refused("picture-transparent", mode="RGBA"):
        answer(picture("RGBA"))
    assert sent == [[plain]]


def test_request_carries_the_trainers_step() -> None:
    annealed = {"schedule": "handover", "after": 8, "steps": 4}
    made = TandemRules(TandemConfig.from_mapping(annealed), VOCABULARY)
    request = begun(step=3, made=made).call([1]).request
    assert isinstance(request, dict)
    assert request["training_step"] == 3


@pytest.mark.parametrize(
    ("validation", "says", "by_team"),
    [
        ("senior", None, False),
        ("team", None, True),
        ("both", "senior", False),
        ("both", "team", True),
        ("all", "senior", False),
        ("all", "junior", True),
        ("both", None, None),
        ("all", None, None),
        ("senior", "teem", None),
    ],
)
def test_validation_is_the_senior_alone_unless_the_team_is_asked_for(
    validation: str, says: str | None, by_team: bool | None
) -> None:
    made = rules(validation=validation)
    said = {} if says is None else {ANSWERER: says}
    if by_team is None:
        with refused("validation-answerer-unknown"):
            begun(validate=True, made=made, **said)
        return
    engine = Engine()
    output = played(begun(validate=True, made=made, **said), engine)
    assert (engine.sent[0]["extra_args"]["tandem"] != "off") is by_team
    assert (AUTHORSHIP in output.extra_fields) is by_team
    if not by_team:
        assert output.response_mask == [1] * 10
        assert output.response_logprobs == [-1.0] * 10


class Engine:
    """Stands for verl's client: remembers what it was sent, returns fixed tokens."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[dict[str, Any]] = []

    async def generate(self, request_id: str, *, sampling_params: Any, **more: Any) -> Any:
        self.sent.append(sampling_params)
        if self.error is not None:
            raise self.error
        first = len(self.sent) - 1  # no two answers begin alike
        return SimpleNamespace(token_ids=list(range(first, first + 10)))


def output_of(ids: list[int], mask: list[int]) -> Any:
    """verl's output of one response."""
    return SimpleNamespace(
        prompt_ids=[1, 2],
        response_ids=ids,
        response_mask=mask,
        response_logprobs=[-1.0] * len(ids),
        extra_fields={},
    )


def played(trajectory: Trajectory, engine: Any, calls: int = 1) -> Any:
    """The output of a loop that keeps the first of some calls."""
    client = TandemClient(engine, trajectory)
    shared = {"temperature": 1.0, "seed": 3, "extra_args": {"other": 1}}
    for _ in range(calls):
        asyncio.run(client.generate("id", prompt_ids=[1, 2], sampling_params=shared))
    assert shared == {"temperature": 1.0, "seed": 3, "extra_args": {"other": 1}}
    output = output_of(list(range(10)), [1] * 10)
    narrow([output], trajectory)
    return output


def test_several_samples_in_one_call_are_refused() -> None:
    engine = Engine()
    client = TandemClient(engine, begun())
    for n in (None, 1):
        asyncio.run(client.generate("id", prompt_ids=[1], sampling_params={"n": n}))
    with refused("agent-loop-samples-unsupported", count=2):
        asyncio.run(client.generate("id", prompt_ids=[1], sampling_params={"n": 2}))
    assert len(engine.sent) == 2


class Worker:
    """verl's AgentLoopWorker, with a loop of one call, of which some tokens are masked."""

    outputs = 1

    def __init__(self, config: Any, client: Any) -> None:
        self.config, self.llm_client, self.tokenizer = config, client, TOKENIZER

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **sample: Any) -> Any:
        answer = await self.llm_client.generate(
            "id", prompt_ids=[1, 2], sampling_params=sampling_params
        )
        mask = [0, 0, *[1] * (len(answer.token_ids) - 2)]
        output = output_of(answer.token_ids, mask)
        outputs = [output] * self.outputs
        found = await self._agent_loop_postprocess(outputs, trajectory["validate"], **sample)
        return found[0]

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any:
        assert not {ROW, ANSWERER} & sample.keys()
        return output if isinstance(output, list) else [output]


def run_one(client: Any, config: Any = IN_TANDEM, tandem: Any = None, session: int = 0) -> Any:
    """The output of a worker's loop, which asks for a schedule of its own or for none."""
    worker = WorkerInTandem.tandem_over(Worker)(config, client)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    params = {"extra_args": {"mine": 1, **({} if tandem is None else {"tandem": tandem})}}
    ran = worker._run_agent_loop(params, trajectory=trajectory, session_id=session, tandem_row=3)
    found = asyncio.run(ran)
    assert params["extra_args"].get("tandem") == tandem  # siblings share it
    return found[0] if isinstance(found, list) else found


def test_worker_restricts_what_its_loop_would_train() -> None:
    output = run_one(Engine())
    facts = ResponseAuthorship.from_wire(output.extra_fields[AUTHORSHIP])
    assert facts is not None
    assert 0 < sum(output.response_mask) < 8
    assert output.response_mask == [0, 0, *facts.authorship[2:].astype(int).tolist()]


def test_prompt_that_a_manager_added_unnumbered_is_refused() -> None:
    identity = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    with refused("verl-prompt-not-numbered"):
        make_trajectory(RULES, identity, {"session_id": 0})


@pytest.mark.parametrize(
    ("error", "asked", "sentence"),
    [
        (RequestError("the engine says no"), None, "RequestError: the engine says no"),
        (None, {"schedule": "junior"}, "[agent-loop-sets-tandem]"),
    ],
)
def test_error_reaches_the_trainer_although_verl_only_logs_errors(
    error: Exception | None, asked: Any, sentence: str
) -> None:
    output = run_one(Engine(error), tandem=asked)
    assert sentence in output.extra_fields["tandem_error"]
    assert not any(output.response_mask)


def test_other_errors_are_verls_business() -> None:
    with pytest.raises(ValueError, match="too long"):
        run_one(Engine(ValueError("too long")))


@pytest.mark.parametrize("metric", ["reward", "acc"])
@pytest.mark.parametrize("failed", [1, 2])
def test_error_is_not_hidden_where_prompts_are_filtered_by_a_metric(
    metric: str, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's own buffer keeps the prompt, so that the trainer is given the error."""
    filtering = OmegaConf.merge(IN_TANDEM, {"algorithm": {"filter_groups": {"metric": metric}}})
    fails = Engine(RequestError("the engine says no"))
    outputs = [run_one(fails, filtering, session=i) for i in range(failed)]
    outputs += [
        SimpleNamespace(reward_score=0.5, extra_fields={"reward_extra_info": {"acc": 0.5}})
        for _ in range(failed, 2)
    ]
    rows = {
        "rm_scores": [torch.tensor([output.reward_score]) for output in outputs],
        "extra_fields": [output.extra_fields for output in outputs],
    }
    monkeypatch.setattr(replay_buffer.tq, "kv_batch_get", lambda **selected: rows)
    buffer = object.__new__(replay_buffer.ReplayBuffer)
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


def test_worker_of_a_run_without_the_flag_is_refused() -> None:
    with refused("verl-configuration-lost"):
        WorkerInTandem.tandem_over(Worker)(PLAIN, Engine()).tandem_rules()


class Manager:
    """verl's AgentLoopManagerTQ."""

    def __init__(self) -> None:
        self.agent_loop_workers_class = ray.remote(Worker)

    def generate_sequences(self, prompts: Any) -> Any:
        return prompts


class Prompts(dict[str, Any]):
    def __len__(self) -> int:
        return 3


def test_prompts_are_numbered_through_each_step_for_workers_of_ours() -> None:
    made: Any = ManagerInTandem.tandem_over(Manager)()
    assert issubclass(made.agent_loop_workers_class.__ray_actor_class__, WorkerInTandem)

    def numbers(**fields: Any) -> list[int]:
        return made.generate_sequences(Prompts(fields))["tandem_row"].tolist()

    assert numbers(global_steps=1) == [0, 1, 2]
    assert numbers(global_steps=1) == [3, 4, 5]
    assert numbers(global_steps=2) == [0, 1, 2]
    assert numbers(global_steps=2, validate=True) == [0, 1, 2]
    assert numbers(global_steps=2) == [3, 4, 5]
    assert made.generate_sequences(Prompts(global_steps=2, tandem_row=[7]))["tandem_row"] == [7]
