"""Sessions of several outputs, and managers of one's own, through verl's real worker and grpo.

A dictionary stands in for TransferQueue, and a function for the reward worker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch
from omegaconf import OmegaConf
from refused import refused
from verl import DataProto
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.rollout.replica import TokenOutput
from verl_gateway import Gateway
from verl_stand_ins import IN_TANDEM, TOKENIZER, configuration

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship
from tandem_plugin.training.calls import Trajectory
from tandem_verl.configuration import prepare
from tandem_verl.rollouts import ROW, ManagerInTandem, TandemAgentLoopManager, WorkerInTandem
from tandem_verl.settings import MANAGER, MANAGER_KEY

RULES = TandemRules(
    TandemConfig.from_mapping({"schedule": "word", "cap": 4}), Vocabulary.from_tokenizer(TOKENIZER)
)
VERLS = agent_loop_tq.AgentLoopWorkerTQ.__ray_actor_class__


class Queue:
    """TransferQueue: the rows of a step in the order in which they are put."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    async def async_kv_batch_put(
        self, keys: list[str], fields: Any, tags: Any, partition_id: str
    ) -> None:
        for number, key in enumerate(keys):
            names = ("prompts", "response_mask", "rm_scores", "responses", "extra_fields")
            self.rows[key] = {name: fields[name][number] for name in names if name in fields}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setattr(agent_loop_tq, "tq", made)
    return made


def seed_of(mask: Sequence[int], tokens: Sequence[int]) -> int:
    """A tandem seed with which these tokens have these authors."""
    for seed in range(10_000):
        if list(map(int, RULES.default.replay(list(tokens), seed).tolist())) == list(mask):
            return seed
    raise AssertionError(mask)


def session(masks: Sequence[Sequence[int]]) -> tuple[Trajectory, list[AgentLoopOutput]]:
    """A session whose outputs have these authors, each of its own call."""
    tokens = [
        [3 * (number + place) % 24 for place in range(len(m))] for number, m in enumerate(masks)
    ]
    seeds = [seed_of(*one) for one in zip(masks, tokens, strict=True)]
    trajectory = Trajectory(RULES.default, lambda call: seeds[call])
    outputs = []
    for number, written in enumerate(tokens):
        prompt = [number, number]
        trajectory.call(prompt).returned(written)
        outputs.append(
            AgentLoopOutput(
                prompt_ids=prompt,
                response_ids=written,
                response_mask=[1] * len(written),
                metrics=AgentLoopMetrics(),
                extra_fields={"global_steps": 1},
            )
        )
    return trajectory, outputs


class Reward:
    """Grades a session by its last output in the loop's order: 1 if it has an odd length."""

    def __init__(self) -> None:
        self.graded: list[int] = []
        self.compute_score = SimpleNamespace(remote=self._score)

    async def _score(self, data: Any) -> dict[str, Any]:
        length = int(data.non_tensor_batch["response_len"][-1])
        self.graded.append(length)
        return {"reward_score": float(length % 2), "reward_extra_info": {"length": length}}


def worker(config: Any = IN_TANDEM, reward: Reward | None = None) -> Any:
    made = object.__new__(WorkerInTandem.tandem_over(VERLS))
    made.config, made.processor, made.distillation_enabled = config, None, False
    made.reward_loop_worker_handles = None if reward is None else [reward]
    made.mm_processor_kwargs = {}
    return made


def put(made: Any, sessions: Sequence[Sequence[Sequence[int]]]) -> None:
    for number, masks in enumerate(sessions):
        made._tandem_trajectory, outputs = session(masks)
        fields = {"uid": "u", "session_id": number, "global_steps": 1, "raw_prompt": [{}]}
        asyncio.run(made._agent_loop_postprocess(outputs, False, **fields))


SESSIONS = [
    [[1, 0, 1], [0, 1]],
    [[1, 1], [0, 0, 0]],  # the junior wrote the last output alone
    [[0, 0], [0, 0]],  # and all of this session
    [[0, 1, 1], [0, 0], [0]],
]


def test_session_learns_from_its_own_reward_whoever_wrote_its_last_output(queue: Queue) -> None:
    reward = Reward()
    put(worker(reward=reward), SESSIONS)
    assert reward.graded == [2, 3, 2, 1]  # once each, in the loop's order
    keys = list(queue.rows)
    masks = [queue.rows[key]["response_mask"] for key in keys]
    longest = max(map(len, masks))

    def padded(rows: Sequence[Any]) -> Any:
        tensors = [torch.as_tensor(row).float() for row in rows]
        fill = torch.zeros(1, longest)[0]
        return torch.nn.utils.rnn.pad_sequence([*tensors, fill], batch_first=True)[:-1]

    mask = padded(masks)
    batch = DataProto.from_dict(
        tensors={
            "response_mask": mask,
            "token_level_rewards": padded([queue.rows[key]["rm_scores"] for key in keys]),
            "responses": torch.ones_like(mask).long(),
            "prompts": torch.ones(len(keys), 1).long(),
            "attention_mask": torch.ones(len(keys), longest + 1).long(),
        },
        non_tensors={"uid": np.array(["u"] * len(keys), dtype=object)},
    )
    advantages = compute_advantage_for_multi_trajectories(
        batch, keys, "grpo", num_repeat=4, config=None
    ).batch["advantages"]
    scores = torch.tensor([0.0, 1.0, 0.0, 1.0])
    expected = (scores - scores.mean()) / (scores.std() + 1e-6)
    for row, key in enumerate(keys):
        own = float(expected[int(key.split("_")[1])])
        assert advantages[row].tolist() == pytest.approx([own * bit for bit in mask[row].tolist()])
    assert mask.sum() == sum(bit for one in SESSIONS for part in one for bit in part)


def test_every_output_has_the_authors_of_its_own_call_and_the_sessions_grade(queue: Queue) -> None:
    put(worker(reward=Reward()), SESSIONS)
    seeds = []
    for row in queue.rows.values():
        facts = ResponseAuthorship.from_wire(row["extra_fields"][AUTHORSHIP])
        assert facts is not None
        ((seed, start, stop),) = facts.segments
        tokens = row["responses"].tolist()
        assert (start, stop) == (0, len(tokens))
        assert facts.authorship.tolist() == RULES.default.replay(tokens, seed).tolist()
        assert row["response_mask"].tolist() == facts.authorship.astype(int).tolist()
        seeds.append(row["extra_fields"]["reward_extra_info"]["length"])
    assert seeds == [2, 2, 3, 3, 2, 2, 1, 1, 1]


def test_last_output_with_the_senior_stands_last_and_the_others_keep_their_order() -> None:
    """Also where an earlier one has the senior as well: verl takes the session's last."""
    for masks, order in (
        ([[1, 0, 1], [0, 1]], [0, 1]),
        ([[1, 1], [0, 0, 0]], [1, 0]),
        ([[1], [1, 1], [0]], [0, 2, 1]),
        ([[0, 0], [0, 0]], [0, 1]),
    ):
        made = worker(reward=Reward())
        made._tandem_trajectory, outputs = session(masks)
        for output, mask in zip(outputs, masks, strict=True):
            output.response_mask = list(mask)
        ordered = asyncio.run(made._tandem_ordered(outputs, {"raw_prompt": [{}]}))
        assert [outputs.index(output) for output in ordered] == order
        assert ordered[-1].reward_score == float(len(masks[-1]) % 2)


def test_output_that_the_loop_does_not_train_has_a_seed_of_its_own(queue: Queue) -> None:
    made = worker(reward=Reward())
    made._tandem_trajectory, outputs = session([[1, 0], [0, 1], [1, 1]])
    calls = made._tandem_trajectory.seed_of_call
    made._tandem_trajectory.seed_of_call = lambda call: calls(call) if call < 3 else -call
    for untrained in outputs[:2]:
        untrained.response_mask = [0, 0]
    fields = {"uid": "u", "session_id": 0, "global_steps": 1, "raw_prompt": [{}]}
    asyncio.run(made._agent_loop_postprocess(outputs, False, **fields))
    found = [
        ResponseAuthorship.from_wire(row["extra_fields"][AUTHORSHIP]) for row in queue.rows.values()
    ]
    assert [facts.seed for facts in found if facts] == [-3, -4, calls(2)]


class LocalGateway(Gateway):  # type: ignore[misc]
    """Without verl's builders of prompts: a character is a token."""

    def __init__(self, server_manager: Any = None, **_: Any) -> None:
        self.server_manager = server_manager
        letters = list(TOKENIZER.get_vocab())
        self.tokenizer = SimpleNamespace(
            encode=lambda text, **_: [ord(letter) % len(letters) for letter in text],
            decode=lambda ids, **_: "".join(letters[one] for one in ids),
        )

    async def ct_build_initial_tokens(self, messages: Any) -> list[int]:
        text = "".join(one["content"] for one in messages)
        return self.tokenizer.encode(text)  # type: ignore[no-any-return]


class RandomEngine:
    """Answers each call with random tokens, and notes the seed that wrote each whole text.

    No two calls write the same one, as two chains of one token after one prompt may.
    """

    def __init__(self) -> None:
        self.random = random.Random(3)
        self.written: dict[tuple[int, ...], int] = {}

    async def generate(self, _: str, *, prompt_ids: Any, sampling_params: Any) -> TokenOutput:
        await asyncio.sleep(self.random.random() / 1000)
        ids: list[int] = []
        while not ids or (*prompt_ids, *ids) in self.written:
            count = self.random.randint(1, sampling_params["max_tokens"])
            ids = [self.random.randrange(24) for _ in range(count)]
        self.written[(*prompt_ids, *ids)] = sampling_params["extra_args"]["tandem"]["seed"]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), extra_fields={})


def test_gateways_chains_have_the_authors_of_their_own_calls(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty sessions side by side through verl's real worker, two chains of each at once."""
    config = configuration({"schedule": "word", "cap": 4})
    made, engine = worker(OmegaConf.merge(config, {"data": {}}), Reward()), RandomEngine()
    made.llm_client, made._tandem_rules = engine, RULES
    for name in ("tokenizer", "processor", "dataset_cls", "hf_model_type", "tools"):
        setattr(made, name, None)
    monkeypatch.setattr(
        agent_loop.hydra.utils, "instantiate", lambda config, **given: LocalGateway(**given)
    )
    monkeypatch.setitem(agent_loop._agent_loop_registry, "gateway", {"_target_": "gateway"})

    async def all_sessions() -> None:
        await asyncio.gather(*(session_of(number) for number in range(20)))

    def session_of(number: int) -> Any:
        return made._run_agent_loop(
            {},
            {"step": 1, "sample_index": 0, "rollout_n": number, "validate": False},
            agent_name="gateway",
            raw_prompt=[{"role": "user", "content": f"task {number}"}],
            **{"uid": "u", "session_id": number, "global_steps": 1, ROW: 0},
        )

    asyncio.run(all_sessions())
    assert len(queue.rows) == 60
    seeds = []
    for row in queue.rows.values():
        facts = ResponseAuthorship.from_wire(row["extra_fields"][AUTHORSHIP])
        assert facts is not None
        tokens = row["responses"].tolist()
        for seed, start, stop in facts.segments:
            assert engine.written[(*row["prompts"].tolist(), *tokens[:stop])] == seed
            replayed = [int(own) for own in RULES.default.replay(tokens[start:stop], seed).tolist()]
            assert row["response_mask"].tolist()[start:stop] == replayed
            seeds.append(seed)
        assert sum(stop - start for _, start, stop in facts.segments) == facts.trained_mask.sum()
    assert len(set(seeds)) == len(seeds) == 80


@pytest.mark.parametrize(
    ("changes", "reward"),
    [
        ({"algorithm.adv_estimator": "rloo"}, Reward()),
        ({"distillation": {"enabled": True}}, Reward()),
        ({}, None),  # a reward model that grades rows later
    ],
)
def test_several_outputs_are_refused_where_verl_reads_them_one_by_one(
    queue: Queue, changes: dict[str, Any], reward: Reward | None
) -> None:
    config = configuration({"schedule": "word"})
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    with refused("agent-loop-outputs-unsupported", count=2):
        put(worker(config, reward), SESSIONS[:1])
    assert not queue.rows


class OwnManager(agent_loop_tq.AgentLoopManagerTQ):  # type: ignore[misc]
    """A user's, as verl documents it: with workers of its own, and fewer prompts than given."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.agent_loop_workers_class = ray.remote(OwnWorker)
        self.sent: list[list[int]] = []

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Any:
        return cls()

    def generate_sequences(self, prompts: Any) -> None:
        self.sent.append(prompts["tandem_row"][1:].tolist())


class OwnWorker(VERLS):  # type: ignore[misc, valid-type]
    pass


class NotVerls:
    pass


def own(name: str) -> Any:
    config = configuration({"schedule": "word"})
    OmegaConf.update(config, MANAGER_KEY, f"{__name__}.{name}", force_add=True)
    prepare(config)
    assert OmegaConf.select(config, MANAGER_KEY) == MANAGER
    return config


class Prompts(dict[str, Any]):
    """A batch of three prompts."""

    def __len__(self) -> int:
        return 3


def test_users_own_manager_runs_in_tandem() -> None:
    manager = TandemAgentLoopManager.create(config=own("OwnManager"))
    assert type(manager).__mro__[1:4] == (ManagerInTandem, Mixin, OwnManager)
    workers = manager.agent_loop_workers_class.__ray_actor_class__
    assert workers.__mro__[1:4] == (WorkerInTandem, Mixin, OwnWorker)
    for _ in range(2):
        manager.generate_sequences(Prompts(global_steps=1))
    assert manager.sent == [[1, 2], [4, 5]]


def test_manager_that_is_not_built_on_verls_is_refused() -> None:
    with refused("verl-manager-unsupported"):
        TandemAgentLoopManager.create(config=own("NotVerls"))
