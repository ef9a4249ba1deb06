"""The patches on stand-ins for verl's classes: what they change, and that a plain run is left."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_plugin import AuthorshipError, ConfigError, EngineError, RequestError, TandemRequest
from tandem_verl import patches
from tandem_verl.trainer import TandemTrainer

torch = pytest.importorskip("torch", reason="torch is not installed")
OmegaConf = pytest.importorskip("omegaconf", reason="verl's configuration library").OmegaConf

TOKENIZER = SimpleNamespace(
    get_vocab=lambda: {("Ġ" if i % 3 == 0 else "") + chr(97 + i): i for i in range(24)},
    name_or_path="a test",
)


def configuration(tandem: dict[str, Any] | None, **trainer: Any) -> Any:
    engine = {} if tandem is None else {"additional_config": {"tandem": tandem}}
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": str(Path(__file__).parent)},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}},
                "rollout": {"name": "vllm", "engine_kwargs": {"vllm": engine}},
            },
            "algorithm": {"adv_estimator": "grpo"},
            "trainer": {"use_v1": True, "v1": {"trainer_mode": "sync"}, **trainer},
        }
    )


ASKING, PLAIN = configuration({"schedule": "word", "cap": 4}), configuration(None)


class Output(SimpleNamespace):
    """verl's AgentLoopOutput, as far as the patches see it."""

    def as_dict(self) -> dict[str, Any]:
        return {"extra_fields": self.extra_fields}


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
    """verl's AgentLoopWorker, as far as the patches see it."""

    def __init__(self, config: Any, client: Client) -> None:
        self.config, self.llm_client, self.tokenizer = config, client, TOKENIZER

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **sample: Any) -> Any:
        generated = await self.llm_client.generate(
            "id", prompt_ids=[1, 2], sampling_params=sampling_params
        )
        ids = generated.token_ids
        output = Output(
            prompt_ids=[1, 2], response_ids=ids, response_mask=[1] * len(ids), extra_fields={}
        )
        return await self._agent_loop_postprocess(output, trajectory["validate"], **sample)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **sample: Any) -> Any:
        assert "tandem_row" not in sample
        return output


def module(**names: Any) -> Any:
    copies = {
        name: type(name, (value,), dict(vars(value))) if isinstance(value, type) else value
        for name, value in names.items()
    }
    return SimpleNamespace(**copies)


def run_one(config: Any, client: Client, **sample: Any) -> Any:
    agent_loop = module(
        AgentLoopWorker=Worker, AgentLoopOutput=Output, AgentLoopMetrics=SimpleNamespace
    )
    for _ in range(2):  # repeatable
        patches.run_agent_loops_in_tandem(agent_loop)
        patches.carry_authorship_through_transfer_queue(agent_loop)
    worker = agent_loop.AgentLoopWorker(config, client)
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    return asyncio.run(worker._run_agent_loop({"n": 1}, trajectory=trajectory, **sample))


def test_plain_run_is_left_as_it_is() -> None:
    client = Client()
    output = run_one(PLAIN, client, session_id=0)
    assert client.sent == [{"n": 1}]
    assert (output.response_mask, output.extra_fields) == ([1] * 10, {})
    assert output.as_dict() == {"extra_fields": {}}


def test_tandem_run_sends_requests_and_narrows_the_mask() -> None:
    client = Client()
    output = run_one(ASKING, client, session_id=0, tandem_row=3)
    assert TandemRequest.parse(client.sent[0]["extra_args"]["tandem"]) is not None
    fields = output.extra_fields
    assert output.response_mask == fields["authorship"]
    assert 0 < sum(fields["authorship"]) < 10


def test_error_reaches_the_trainer_through_v1_which_only_logs_errors() -> None:
    output = run_one(ASKING, Client(RequestError("the engine says no")), session_id=0, uid="u")
    assert output.extra_fields["tandem_error"] == "RequestError: the engine says no"
    assert not any(output.response_mask)


def test_error_is_raised_in_v0_which_passes_it_on() -> None:
    with pytest.raises(RequestError, match="the engine says no"):
        run_one(ASKING, Client(RequestError("the engine says no")), priority=0)


def test_error_is_not_dropped_with_prompts_whose_scores_are_all_equal() -> None:
    scores = [
        run_one(ASKING, Client(RequestError("no")), session_id=i, uid="u").reward_score
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
    filtering = OmegaConf.merge(ASKING, {"algorithm": {"filter_groups": {"metric": metric}}})
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
    monkeypatch.setattr(buffers.tq, "kv_batch_get", lambda **asked: rows)
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
        tandem, token_ids = tandem_of(ASKING), list(range(20))
        for start, stop in itertools.pairwise([0, *self.cuts, 20]):
            self.sent.append(sampling_params)
            asked = tandem.rules.for_request(sampling_params["extra_args"]["tandem"])
            begun = asked.begun(prompt_ids + token_ids[:start])
            assert begun == token_ids[:start]
            part = asked.rule.replay_rest(begun, token_ids[start:stop], asked.seed)
            self.authors += part.tolist()
        return SimpleNamespace(token_ids=token_ids)


def tandem_of(config: Any) -> TandemTrainer:
    tandem = TandemTrainer.start(config, TOKENIZER)
    assert tandem is not None
    return tandem


@pytest.mark.parametrize("cuts", [[], [7], [0, 1, 2], [5, 5, 19], [20]])
def test_authorship_of_an_interrupted_response_is_that_of_its_parts(cuts: list[int]) -> None:
    client = InterruptedClient(cuts)
    output = run_one(ASKING, client, session_id=0, tandem_row=3)
    fields = output.extra_fields
    assert len(client.sent) == len(cuts) + 1
    assert fields["authorship"] == client.authors
    assert 0 < sum(fields["authorship"]) < 20
    assert fields["tandem_passages"] == [[fields["tandem_seed"], 0, 20]]


def test_fully_async_policy_is_refused_where_its_rollouts_begin() -> None:
    config = configuration({"schedule": "word"})
    config.async_training = {"partial_rollout": True}
    client = Client()
    with pytest.raises(ConfigError, match="fully_async_policy"):
        run_one(config, client, priority=0)
    assert client.sent == []


def test_other_errors_are_verls_business() -> None:
    with pytest.raises(ValueError, match="too long"):
        run_one(ASKING, Client(ValueError("too long")), session_id=0)


class Manager:
    def __init__(self, config: Any) -> None:
        self.config = config

    def generate_sequences(self, prompts: Any) -> Any:
        return prompts


class Prompts(dict[str, Any]):
    def __len__(self) -> int:
        return 3


def test_prompts_are_numbered_through_each_step() -> None:
    loop = module(AgentLoopManagerTQ=Manager)
    patches.number_prompts(loop)
    manager = loop.AgentLoopManagerTQ(ASKING)

    def numbers(**fields: Any) -> list[int]:
        return manager.generate_sequences(Prompts(fields))["tandem_row"].tolist()

    assert numbers(global_steps=1) == [0, 1, 2]
    assert numbers(global_steps=1) == [3, 4, 5]
    assert numbers(global_steps=2) == [0, 1, 2]
    assert numbers(global_steps=2, validate=True) == [0, 1, 2]
    assert numbers(global_steps=2) == [3, 4, 5]
    plain = loop.AgentLoopManagerTQ(PLAIN).generate_sequences(Prompts(global_steps=1))
    assert "tandem_row" not in plain


TOKENS, MASKS = [[3, 6, 9], [12, 15]], [[1, 0, 1], [0, 1]]
"""Two responses of boundaries alone, and who wrote their tokens under these seeds."""


def seed_of(tokens: list[int], senior: list[int]) -> int:
    """A seed under which these tokens have these authors."""
    rule = tandem_of(ASKING).rule
    return next(seed for seed in range(1000) if rule.replay(tokens, seed).tolist() == senior)


SEEDS = [seed_of(tokens, mask) for tokens, mask in zip(TOKENS, MASKS, strict=True)]
PASSAGES = [[[seed, 0, len(tokens)]] for seed, tokens in zip(SEEDS, TOKENS, strict=True)]
TRAINED = [[[0, len(tokens)]] for tokens in TOKENS]


def nested(rows: list[list[int]]) -> Any:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


class Listed(list[Any]):
    def tolist(self) -> list[Any]:
        return list(self)


class Queue:
    """TransferQueue: the columns of two rows of one prompt."""

    def __init__(self, fingerprint: str) -> None:
        self.columns: dict[str, Any] = {
            "responses": nested(TOKENS),
            "response_mask": nested(MASKS),
            "loss_mask": nested(MASKS),
            "authorship": nested(MASKS),
            "tandem_seed": Listed(SEEDS),
            "tandem_fingerprint": Listed([fingerprint] * 2),
            "extra_fields": Listed(
                {
                    "tandem_passages": passages,
                    "tandem_trained": trained,
                    "tandem_schedule": {"schedule": "word"},
                }
                for passages, trained in zip(PASSAGES, TRAINED, strict=True)
            ),
        }

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        return {name: self.columns[name] for name in select_fields if name in self.columns}


class Buffer:
    def __init__(self, partition: str) -> None:
        self.partition = partition

    def sample(self, **options: Any) -> Any:
        keys = ["u_0_0", "u_1_0"]
        return SimpleNamespace(keys=keys, partition_id=self.partition), {"other": 1}


class Validation:
    """What both trainers have to validate with, as far as the patches see it."""

    def _validate(self) -> dict[str, float]:
        return {}

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None: ...


class TrainerV1(Validation):
    def __init__(self, config: Any, partition: str = "train") -> None:
        self.config, self.partition = config, partition
        self.dumped: dict[str, Any] = {}
        self.replay_buffer = self._build_replay_buffer()
        self._init_tokenizer()

    def _init_tokenizer(self) -> None:
        self.tokenizer = TOKENIZER

    def _build_replay_buffer(self) -> Any:
        return Buffer(self.partition)

    def _dump_generations(self, **dump: Any) -> None:
        self.dumped = dump

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if batch.extra_info.get(patches.LAMBDA_JUN) and self.workers_have_the_adapter:
            metrics["actor/junior_imitation_loss"] = 2.0
        return batch

    workers_have_the_adapter = True


def trainer_v1(config: Any, partition: str = "train") -> Any:
    base = module(PPOTrainer=TrainerV1, tq=Queue(""))
    patches.watch_trainer_v1(base)
    trainer = base.PPOTrainer(config, partition)
    if trainer._tandem is not None:
        base.tq.columns = Queue(trainer._tandem.rule.fingerprint).columns
    return trainer, base.tq


def dump(trainer: Any) -> dict[str, Any]:
    keys = ["padded_0_0", "u_1_0", "u_0_0"]
    trainer._dump_generations(
        inputs=["", "b", "a"],
        outputs=["", "y", "x"],
        gts=[None, 1, 0],
        scores=[0.0, 1.0, 0.5],
        reward_extra_infos_dict={"uid": keys},
        dump_path="folder",
    )
    return trainer.dumped


def test_v1_says_that_tandem_is_on_and_measures_every_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer, _ = trainer_v1(ASKING)
    said = capsys.readouterr().out
    assert "tandem is on: schedule=word p=0.5 cap=4 boundaries=word" in said
    assert f"fingerprint={trainer._tandem.rule.fingerprint}" in said
    _, metrics = trainer.replay_buffer.sample()
    assert metrics == {
        "other": 1,
        "tandem/senior_share": 3 / 5,
        "tandem/spans_per_response": 5 / 2,
        "tandem/handoffs_per_response": 3 / 2,
        "tandem/responses_without_senior": 0,
    }


def test_v1_dump_carries_what_a_replay_needs_and_no_made_up_rows() -> None:
    trainer, _ = trainer_v1(configuration({"schedule": "word"}, rollout_data_dir="folder"))
    trainer.replay_buffer.sample()
    dumped = dump(trainer)
    assert dumped["outputs"] == ["y", "x"]
    assert dumped["reward_extra_infos_dict"] == {
        "uid": ["u_1_0", "u_0_0"],
        "response_ids": TOKENS[::-1],
        "authorship": MASKS[::-1],
        "tandem_seed": SEEDS[::-1],
        "tandem_fingerprint": [trainer._tandem.rule.fingerprint] * 2,
        "tandem_schedule": [{"schedule": "word"}] * 2,
        "tandem_passages": PASSAGES[::-1],
    }


def test_v1_plain_run_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, _ = trainer_v1(PLAIN)
    assert trainer.replay_buffer.sample()[1] == {"other": 1}
    assert dump(trainer)["reward_extra_infos_dict"].keys() == {"uid"}
    assert len(dump(trainer)["outputs"]) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("authorship", nested([[1, 0], [0, 1]]), "3 response tokens but 2 entries of authorship"),
        ("authorship", None, "has no authorship"),
        ("loss_mask", nested([[1, 1, 1], [0, 1]]), "loss_mask of Row u_0_0 is not what"),
    ],
)
def test_v1_stops_on_a_batch_that_is_not_tandems(column: str, value: Any, sentence: str) -> None:
    trainer, queue = trainer_v1(ASKING)
    if value is None:
        del queue.columns[column]
    else:
        queue.columns[column] = value
    with pytest.raises(AuthorshipError, match=sentence):
        trainer.replay_buffer.sample()


def complement(masks: list[list[int]]) -> list[list[int]]:
    return [[1 - bit for bit in mask] for mask in masks]


def test_v1_stops_on_the_complement_of_the_replay() -> None:
    trainer, queue = trainer_v1(ASKING)
    for column in ("authorship", "response_mask", "loss_mask"):
        queue.columns[column] = nested(complement(MASKS))
    with pytest.raises(AuthorshipError, match="authorship of Row u_0_0 is not what its tokens"):
        trainer.replay_buffer.sample()


@pytest.mark.parametrize("column", ["response_mask", "loss_mask"])
def test_v1_stops_on_a_mask_that_changes_before_the_update(column: str) -> None:
    trainer, queue = trainer_v1(ASKING)
    trainer.replay_buffer.sample()
    trainer._update_actor(whole_batch(), {})
    queue.columns[column] = nested(complement(MASKS))
    with pytest.raises(AuthorshipError, match=f"{column} of Row u_0_0 changed between"):
        trainer._update_actor(whole_batch(), {})


def test_v1_update_may_leave_out_what_rejection_sampling_rejects() -> None:
    for rejects in (False, True):
        config = configuration({"schedule": "word", "cap": 4})
        config.algorithm.rollout_correction = {"rollout_rs": "token_k1" if rejects else None}
        trainer, queue = trainer_v1(config)
        trainer.replay_buffer.sample()
        queue.columns["response_mask"] = nested([[0, 0, 1], [0, 0]])
        if rejects:
            trainer._update_actor(whole_batch(), {})
        else:
            with pytest.raises(AuthorshipError, match="changed between"):
                trainer._update_actor(whole_batch(), {})


def test_v1_stops_when_rows_differ_in_their_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, queue = trainer_v1(ASKING)

    def not_ready(**options: Any) -> Any:
        raise ValueError("Some fields are not ready in all the requested keys!")

    monkeypatch.setattr(queue, "kv_batch_get", not_ready)
    with pytest.raises(AuthorshipError, match="without authorship"):
        trainer.replay_buffer.sample()


def test_v1_stops_on_a_trajectory_that_the_engine_refused() -> None:
    for partition in ("train", "val"):
        trainer, queue = trainer_v1(ASKING, partition)
        queue.columns["extra_fields"][1]["tandem_error"] = "RequestError: no"
        with pytest.raises(EngineError, match="RequestError: no"):
            trainer.replay_buffer.sample()


def test_v1_validation_is_not_measured() -> None:
    trainer, queue = trainer_v1(ASKING, "val")
    for column in ("authorship", "tandem_seed", "tandem_fingerprint"):
        del queue.columns[column]
    assert trainer.replay_buffer.sample()[1] == {"other": 1}


def whole_batch() -> Any:
    return SimpleNamespace(keys=["u_0_0", "u_1_0"], partition_id="train", extra_info={})


IMITATING = configuration({"schedule": "word", "cap": 4, "lambda_jun": 0.2})


def test_v1_tells_the_workers_to_imitate_and_stops_when_they_do_not() -> None:
    trainer, queue = trainer_v1(IMITATING)
    queue.columns["junior_mask"] = nested([[0, 1, 0], [1, 0]])
    trainer.replay_buffer.sample()
    batch, metrics = whole_batch(), {}
    assert trainer._update_actor(batch, metrics) is batch
    assert batch.extra_info == {patches.LAMBDA_JUN: 0.2}
    assert metrics == {"actor/junior_imitation_loss": 2.0}
    trainer.workers_have_the_adapter = False
    with pytest.raises(EngineError, match="left the junior-imitation term out"):
        trainer._update_actor(batch, {})
    plain, _ = trainer_v1(ASKING)
    plain.replay_buffer.sample()
    batch = whole_batch()
    plain._update_actor(batch, {})
    assert batch.extra_info == {}


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (None, "3 response tokens but no entries of junior_mask"),
        ([[0, 1], [1, 0]], "3 response tokens but 2 entries of junior_mask"),
        ([[1, 1, 0], [1, 0]], "is not what the junior wrote: it differs at 1 .* position 0"),
        ([[0, 0, 0], [1, 0]], "is not what the junior wrote: it differs at 1 .* position 1"),
    ],
)
def test_v1_stops_on_tokens_to_imitate_that_are_not_the_juniors(mask: Any, sentence: str) -> None:
    trainer, queue = trainer_v1(IMITATING)
    if mask is not None:
        queue.columns["junior_mask"] = nested(mask)
    with pytest.raises(AuthorshipError, match=sentence):
        trainer.replay_buffer.sample()


def test_rows_that_verl_makes_up_imitate_nothing() -> None:
    def template(source: dict[str, Any], tag: Any, eos_token_id: int) -> Any:
        return {**source, "response_mask": torch.zeros(1, dtype=torch.int64)}, tag

    padding = module(construct_minimal_padding_template=template)
    patches.imitate_nothing_in_padding(padding)
    made, _ = padding.construct_minimal_padding_template({"junior_mask": torch.ones(3)}, {}, 0)
    assert made["junior_mask"].tolist() == [0]
    assert "junior_mask" not in padding.construct_minimal_padding_template({}, {}, 0)[0]


class TrainerV0(Validation):
    def __init__(self, config: Any, tokenizer: Any) -> None:
        self.config = config
        self.logged: dict[str, Any] = {}

    def _update_actor(self, batch: Any) -> Any:
        metrics = {"actor/loss": 1}
        if batch is not None and "junior_mask" in batch.batch:
            assert "junior_mask" not in batch.non_tensor_batch  # verl refuses both
            metrics["actor/junior_imitation_loss"] = batch.batch["junior_mask"].tolist()
            metrics["weight"] = batch.meta_info[patches.LAMBDA_JUN]
        return SimpleNamespace(meta_info={"metrics": metrics})

    def _log_rollout_data(self, batch: Any, extra: Any, timing: Any, folder: str) -> None:
        self.logged = extra

    def _dump_generations(self, **dump: Any) -> None: ...


def batch_v0(fingerprint: str) -> Any:
    def column(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    return SimpleNamespace(
        batch={
            "responses": torch.tensor([[*TOKENS[0], 0], [*TOKENS[1], 0, 0]]),
            "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]]),
            "response_mask": torch.tensor([[*MASKS[0], 0], [*MASKS[1], 0, 0]]),
        },
        non_tensor_batch={
            "uid": column(["u", "u"]),
            "authorship": column(MASKS),
            "tandem_seed": column(SEEDS),
            "tandem_fingerprint": column([fingerprint] * 2),
            "tandem_passages": column(PASSAGES),
            "tandem_trained": column(TRAINED),
        },
    )


class V0:
    """The module of the legacy trainer, and a step of it as far as the patches see it."""

    def __init__(self, config: Any) -> None:
        self.module = module(RayPPOTrainer=TrainerV0, extract_reward=lambda batch: (None, {}))
        patches.watch_trainer_v0(self.module)
        self.trainer = self.module.RayPPOTrainer(config, TOKENIZER)
        tandem = self.trainer._tandem
        self.batch = None if tandem is None else batch_v0(tandem.rule.fingerprint)

    def step(self) -> Any:
        self.module.extract_reward(self.batch)
        return self.update()

    def update(self) -> Any:
        return self.trainer._update_actor(self.batch).meta_info["metrics"]


def test_v0_checks_measures_and_dumps_the_same() -> None:
    v0 = V0(ASKING)
    metrics = v0.step()
    assert metrics["tandem/senior_share"] == 3 / 5
    assert metrics["tandem/handoffs_per_response"] == 3 / 2
    v0.trainer._log_rollout_data(v0.batch, {"acc": [1, 0]}, {}, "folder")
    logged = v0.trainer.logged
    assert logged["acc"] == [1, 0]
    assert logged["response_ids"] == TOKENS
    assert logged["authorship"] == MASKS
    assert logged["tandem_seed"] == SEEDS


def test_v0_pads_what_is_to_be_imitated_like_its_own_masks() -> None:
    v0 = V0(IMITATING)
    masks = np.empty(2, dtype=object)
    masks[:] = [[0, 1, 0], [1, 0]]
    v0.batch.non_tensor_batch["junior_mask"] = masks
    v0.batch.meta_info = {}
    metrics = v0.step()
    assert metrics["actor/junior_imitation_loss"] == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert metrics["weight"] == 0.2
    assert "junior_mask" not in v0.batch.batch  # the batch is dumped later


def test_v0_stops_on_a_truncated_authorship_and_on_a_mask_that_trains_padding() -> None:
    v0 = V0(ASKING)
    v0.batch.non_tensor_batch["authorship"][0] = [1, 0]
    with pytest.raises(AuthorshipError, match="2 entries of authorship"):
        v0.step()
    v0 = V0(ASKING)
    v0.batch.batch["response_mask"][1, 3] = 1
    with pytest.raises(AuthorshipError, match="4 entries of response_mask"):
        v0.step()


def test_v0_stops_on_the_complement_of_the_replay() -> None:
    v0 = V0(ASKING)
    for row, mask in enumerate(complement(MASKS)):
        v0.batch.non_tensor_batch["authorship"][row] = mask
        v0.batch.batch["response_mask"][row, : len(mask)] = torch.tensor(mask)
    with pytest.raises(AuthorshipError, match=r"authorship of Row 0 \(u\) is not what its tokens"):
        v0.step()


def test_v0_stops_on_an_update_that_was_not_checked() -> None:
    with pytest.raises(AuthorshipError, match="was not among the rows that the trainer checked"):
        V0(ASKING).update()
    v0 = V0(ASKING)
    v0.step()
    v0.batch.batch["response_mask"][0, 1] = 1
    with pytest.raises(AuthorshipError, match="changed between the trainer's check and the update"):
        v0.update()


def test_v0_plain_run_is_left_as_it_is() -> None:
    trainer = V0(PLAIN).trainer
    assert trainer._update_actor(None).meta_info == {"metrics": {"actor/loss": 1}}
    trainer._log_rollout_data(None, {"acc": [1]}, {}, "folder")
    assert trainer.logged == {"acc": [1]}


def unchecked(config: Any) -> Any:
    """A trainer that begins in its own way, as verl's experimental FullyAsyncTrainer does."""
    base = module(RayPPOTrainer=TrainerV0, extract_reward=lambda batch: (None, {}))
    patches.watch_trainer_v0(base)
    trainer = object.__new__(base.RayPPOTrainer)
    TrainerV0.__init__(trainer, config, TOKENIZER)
    return trainer


def test_trainer_that_did_not_begin_with_the_checks_updates_only_without_tandem() -> None:
    with pytest.raises(EngineError, match="did not start as verl's own trainers do"):
        unchecked(ASKING)._update_actor(None)
    assert unchecked(PLAIN)._update_actor(None).meta_info == {"metrics": {"actor/loss": 1}}


def test_refused_setting_stops_both_trainers_and_the_driver() -> None:
    config = configuration({"schedule": "words"})
    with pytest.raises(ConfigError, match="schedule='words' does not exist"):
        trainer_v1(config)
    with pytest.raises(ConfigError, match="schedule='words' does not exist"):
        V0(config)
    driver = module(validate_config=lambda config, **more: "validated")
    patches.refuse_at_the_driver(driver)
    assert driver.validate_config(config=PLAIN, use_critic=False) == "validated"
    assert driver.validate_config(config=ASKING, use_critic=False) == "validated"
    with pytest.raises(ConfigError, match="schedule='words' does not exist"):
        driver.validate_config(config=config)


class Server:
    def __init__(self, config: Any) -> None:
        self.config = config.actor_rollout_ref.rollout
        self.engine: Any = None

    async def run_server(self, args: Any) -> None:
        self.engine = SimpleNamespace(vllm_config=args, shutdown=lambda: setattr(self, "off", True))

    async def generate(self, error: Exception, cause: Exception | None) -> None:
        raise error from cause


def test_server_whose_engine_is_not_tandems_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tandem_plugin.engine.status", reason="the engine side is not there")

    def check_engine(vllm_config: Any) -> None:
        if vllm_config == "plain":
            raise EngineError("not in tandem")

    monkeypatch.setattr("tandem_plugin.engine.status.check_engine", check_engine)
    served = module(vLLMHttpServer=Server)
    patches.check_running_engine(served)
    asyncio.run(served.vLLMHttpServer(ASKING).run_server("tandem"))
    asyncio.run(served.vLLMHttpServer(PLAIN).run_server("plain"))
    server = served.vLLMHttpServer(ASKING)
    with pytest.raises(EngineError, match="not in tandem"):
        asyncio.run(server.run_server("plain"))
    assert server.off


def test_engines_refusal_leaves_the_server_with_its_sentence() -> None:
    served = module(vLLMHttpServer=Server)
    patches.pass_on_refusals(served)
    server = served.vLLMHttpServer(ASKING)
    with pytest.raises(RequestError, match="no seed"):
        asyncio.run(server.generate(RuntimeError(), RequestError("no seed")))
    with pytest.raises(RuntimeError, match="of vLLM's own"):
        asyncio.run(server.generate(RuntimeError("of vLLM's own"), ValueError()))


def test_trainer_that_does_not_ask_has_no_tandem() -> None:
    assert TandemTrainer.start(PLAIN, TOKENIZER) is None
