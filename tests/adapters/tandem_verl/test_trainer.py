"""Trainer V1 in tandem, on rows as verl makes and pads them: what it checks, measures and dumps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl_stand_ins import IMITATING, IN_TANDEM, PLAIN, TOKENIZER, configuration, tandem_of

from tandem_plugin import TandemRules
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship
from tandem_plugin.training.checkpoint_note import NOTE
from tandem_plugin.training.metrics import batch_metrics
from tandem_verl import loss
from tandem_verl.batch import rows_of_keys
from tandem_verl.rollouts import ROW, ManagerInTandem, TandemClient, make_trajectory, narrow
from tandem_verl.trainer import TrainerInTandem

ANSWERS = [[3, 4, 6, 7, 9, 10], [12, 13], [15, 16, 18, 1], [5]]
KEYS = ["u_0_0", "u_1_0"]


class Queue:
    """TransferQueue: rows as verl puts them, and its batches made of them as it does."""

    def __init__(self, rules: TandemRules) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        for session, key in enumerate(KEYS):
            fields = generated(rules, session).as_dict()
            self.rows[key] = {**fields, "loss_mask": fields["response_mask"]}
        padding, self.tag = construct_minimal_padding_template(dict(self.rows[KEYS[0]]), {}, 0)
        self.rows["pad_0_0"] = padding

    @property
    def filled(self) -> Any:
        """The batch of an update: in another order, with a row that verl made up to fill it."""
        return SimpleNamespace(
            keys=["pad_0_0", *reversed(KEYS)],
            partition_id="train",
            tags=[self.tag, {}, {}],
            extra_info={"epochs": 1},
        )

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        rows = [{name: self.rows[key].get(name) for name in select_fields} for key in keys]
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return list_of_dict_to_tensordict(rows)

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> Any:
        for key, mask in zip(keys, fields["junior_mask"].unbind(), strict=True):
            self.rows[key]["junior_mask"] = mask
        return SimpleNamespace(keys=keys, partition_id=partition_id)


def generated(rules: TandemRules, session: int) -> Any:
    """verl's output of one session: two calls, feedback between them."""
    identity = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    trajectory = make_trajectory(rules, identity, {ROW: 0, "session_id": session})
    answers = iter(ANSWERS[2 * session : 2 * session + 2])

    async def generate(request_id: str, **asked: Any) -> Any:
        return SimpleNamespace(token_ids=next(answers))

    client = TandemClient(SimpleNamespace(generate=generate), trajectory)
    ids, mask = [1, 2], []
    for feedback in ([20, 21], []):
        answer = asyncio.run(client.generate("id", prompt_ids=ids, sampling_params={}))
        ids = [*ids, *answer.token_ids, *feedback]
        mask += [1] * len(answer.token_ids) + [0] * len(feedback)
    output = agent_loop.AgentLoopOutput(
        prompt_ids=[1, 2],
        response_ids=ids[2:],
        response_mask=mask,
        response_logprobs=[-0.5] * len(mask),
        reward_score=1.0,
        metrics=agent_loop.AgentLoopMetrics(),
        extra_fields={},
    )
    narrow([output], trajectory)
    return output


class TrainerV1:
    """verl's PPOTrainer, whose steps do nothing."""

    workers_have_the_adapter = True

    def __init__(self, config: Any, partition: str = "train") -> None:
        self.config, self.partition = config, partition
        self.dumped: dict[str, Any] = {}
        self.replay_buffer = self._build_replay_buffer()
        self._init_tokenizer()

    def _init_tokenizer(self) -> None:
        self.tokenizer = TOKENIZER

    def _init_dataloader(self) -> None: ...

    def _setup(self) -> None: ...

    def _load_checkpoint(self) -> None:
        self.global_steps = 5 if Path(self.config.trainer.default_local_dir).exists() else 0

    def _save_checkpoint(self) -> None:
        assert (self._tandem_checkpoint() / NOTE).exists()  # a callback may take it from there

    def _init_resource_pool_mgr(self) -> None: ...

    def fit(self, agent_loop_manager: Any) -> Any:
        return agent_loop_manager

    def _validate(self) -> dict[str, float]:
        return {}

    def _build_replay_buffer(self) -> Any:
        batch = SimpleNamespace(keys=KEYS, partition_id=self.partition)
        return SimpleNamespace(sample=lambda: (batch, {"other": 1}))

    def _dump_generations(self, **dump: Any) -> None:
        self.dumped = dump

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if batch.extra_info.get(loss.LAMBDA_JUN) and self.workers_have_the_adapter:
            metrics["actor/junior_imitation_loss"] = 2.0
        return batch


def prepared(config: Any) -> Any:
    """A configuration as the driver hands it to trainer V1."""
    copy = config.copy()
    copy.trainer.v1.trainer_mode = f"tandem_{copy.trainer.v1.trainer_mode}"
    return copy


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a trainer, and gives it and its TransferQueue."""

    def started(config: Any = IN_TANDEM, partition: str = "train") -> Any:
        trainer = TrainerInTandem.tandem_over(TrainerV1)(prepared(config), partition)
        queue = Queue(trainer._tandem.rules)
        monkeypatch.setattr("tandem_verl.trainer.queue", lambda: queue)
        return trainer, queue

    return started


@pytest.mark.parametrize("config", [IN_TANDEM, prepared(PLAIN)], ids=["not prepared", "plain"])
def test_trainer_that_the_driver_did_not_prepare_is_refused(config: Any) -> None:
    with refused("verl-internal-trainer-mode"):
        TrainerInTandem.tandem_over(TrainerV1)(config)


def test_trainer_goes_on_with_a_manager_of_ours_and_one_validation_alone(start: Any) -> None:
    trainer, _ = start()
    assert trainer.config.trainer.v1.trainer_mode == "sync"  # which verl compares
    ours = object.__new__(ManagerInTandem)
    assert trainer.fit(ours) is ours
    with refused("trainer-class-replaced"):
        trainer.fit(SimpleNamespace())
    with refused("verl-validations-merged"):
        trainer._validate(merged=True)


@pytest.mark.parametrize("config", [IN_TANDEM, IMITATING], ids=["", "imitating"])
def test_batch_is_measured_and_its_update_may_be_filled_and_in_another_order(
    start: Any, config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, queue = start(config)
    assert "tandem is on: schedule=word p=0.5 cap=4" in capsys.readouterr().out
    batch, metrics = trainer.replay_buffer.sample()
    rows = rows_of_keys(batch, queue)
    assert {row.group for row in rows} == {"u"}  # the prompt of u_0_0 and u_1_0
    assert metrics.pop("tandem/boundary_share") > 0
    assert metrics == {"other": 1, **batch_metrics(rows)}
    assert 0 < metrics["tandem/senior_share"] < 1
    trainer._update_critic(queue.filled, {})
    trainer._update_actor(queue.filled, {})


@pytest.mark.parametrize("update", ["_update_actor", "_update_critic"])
@pytest.mark.parametrize(
    ("key", "code"), [("u_1_0", "mask-changed-after-check"), ("pad_0_0", "row-not-checked")]
)
@pytest.mark.parametrize("column", ["response_mask", "loss_mask"])
def test_update_of_other_masks_is_refused(
    start: Any, column: str, key: str, code: str, update: str
) -> None:
    trainer, queue = start()
    trainer.replay_buffer.sample()
    queue.rows[key][column] = 1 - queue.rows[key][column]
    with refused(code, row=f"Row {key}"):
        getattr(trainer, update)(queue.filled, {})


@pytest.mark.parametrize(
    ("correction", "rejects"),
    [
        ({"rollout_rs": None}, False),
        ({"rollout_rs": "token_k1"}, True),
        # In bypass mode the loss rejects, and no mask changes before it.
        ({"rollout_rs": "token_k1", "bypass_mode": True}, False),
    ],
)
def test_update_may_leave_out_what_rejection_sampling_rejects(
    correction: dict[str, Any], rejects: bool
) -> None:
    config = configuration({"schedule": "word", "cap": 4})
    config.algorithm.rollout_correction = correction
    assert tandem_of(config).rejects is rejects


@pytest.mark.parametrize("partition", ["train", "val"])
def test_trajectory_that_the_engine_refused_stops_the_trainer(start: Any, partition: str) -> None:
    trainer, queue = start(partition=partition)
    queue.rows["u_0_0"]["extra_fields"] = {}
    queue.rows["u_1_0"]["extra_fields"] = {"tandem_error": "RequestError: no"}
    with refused("trajectory-failed", error="RequestError: no"):
        trainer.replay_buffer.sample()
    if partition == "val":  # which is not measured
        queue.rows["u_1_0"]["extra_fields"] = {}
        assert trainer.replay_buffer.sample()[1] == {"other": 1}


def test_workers_are_told_what_to_imitate_and_the_run_stops_when_they_do_not(start: Any) -> None:
    """The junior's tokens, and none in rows that fill the batch."""
    trainer, queue = start(IMITATING)
    trainer.replay_buffer.sample()
    metrics: dict[str, Any] = {}
    told = trainer._update_actor(queue.filled, metrics)
    assert told.extra_info == {"epochs": 1, loss.LAMBDA_JUN: 0.2}
    assert told.tags == queue.filled.tags
    assert metrics == {"actor/junior_imitation_loss": 2.0}
    for key in KEYS:
        facts = ResponseAuthorship.from_wire(queue.rows[key]["extra_fields"][AUTHORSHIP])
        assert facts is not None
        assert facts.junior_mask.any()
        assert queue.rows[key]["junior_mask"].tolist() == facts.junior_mask.astype(int).tolist()
    assert queue.rows["pad_0_0"]["junior_mask"].tolist() == [0]
    trainer.workers_have_the_adapter = False
    with refused("imitation-term-missing"):
        trainer._update_actor(queue.filled, {})
    plain, queue = start()
    plain.replay_buffer.sample()
    assert plain._update_actor(queue.filled, {}).extra_info == {"epochs": 1}
    assert not any("junior_mask" in row for row in queue.rows.values())


def test_checkpoint_says_with_which_settings_it_was_made(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def settings(mode: str = "auto", **tandem: Any) -> Any:
        place = {"default_local_dir": str(tmp_path / "run"), "resume_mode": mode}
        resumed = {"resume_from_path": str(tmp_path / "run" / "global_step_5")}
        return configuration({"schedule": "word", "cap": 4, **tandem}, **place, **resumed)

    trainer, _ = start(settings())
    trainer._load_checkpoint()  # nothing to resume
    trainer.global_steps = 5
    trainer._save_checkpoint()
    capsys.readouterr()
    for mode in ("auto", "resume_path"):
        trainer, _ = start(settings(mode, p=0.25))
        trainer._load_checkpoint()
        assert "with changes: p=0.25 (was null); fingerprint=" in capsys.readouterr().out
    elsewhere = settings("resume_path")  # a named checkpoint without a note, beside one with
    elsewhere.trainer.resume_from_path = str(tmp_path / "copied" / "global_step_5")
    trainer, _ = start(elsewhere)
    capsys.readouterr()
    trainer._load_checkpoint()
    assert "copied/global_step_5' has no tandem.json" in capsys.readouterr().out
    other = settings()
    other.actor_rollout_ref.model.path = str(tmp_path / "run")
    trainer, _ = start(other)
    with refused("checkpoint-tandem-dropped"):
        trainer._load_checkpoint()
