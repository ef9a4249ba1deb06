"""Trainer V1 in tandem on a stand-in for verl's: what it checks, measures and dumps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused
from verl_stand_ins import (
    IMITATING,
    IN_TANDEM,
    MASKS,
    PLAIN,
    SEEDS,
    SEGMENTS,
    TOKENIZER,
    TOKENS,
    Validation,
    complement,
    configuration,
    facts_of,
    prepared,
    tandem_of,
    torch,
)

from tandem_plugin.patching.mixins import in_tandem
from tandem_plugin.training.authorship_wire import FACTS
from tandem_verl import trainer as trainer_v1
from tandem_verl.manager import ManagerInTandem


def nested(rows: list[list[int]]) -> Any:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


RULES = tandem_of(IN_TANDEM).rules


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
            "extra_fields": Listed({FACTS: facts_of(row, fingerprint)} for row in range(2)),
        }
        self.put: dict[str, Any] = {}

    @property
    def told(self) -> list[dict[str, Any]]:
        """What tandem says of each row."""
        return list(self.columns["extra_fields"])

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: list[str]) -> Any:
        return {name: self.columns[name] for name in select_fields if name in self.columns}

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any) -> Any:
        self.put = {
            name: [row.tolist() for row in fields[name].unbind()] for name in sorted(fields.keys())
        }
        return SimpleNamespace(keys=keys, partition_id=partition_id, fields=list(self.put))


class Buffer:
    def __init__(self, partition: str) -> None:
        self.partition = partition

    def sample(self, **options: Any) -> Any:
        keys = ["u_0_0", "u_1_0"]
        return SimpleNamespace(keys=keys, partition_id=self.partition), {"other": 1}


class TrainerV1(Validation):
    def __init__(self, config: Any, partition: str = "train") -> None:
        self.config, self.partition = config, partition
        self.dumped: dict[str, Any] = {}
        self.replay_buffer = self._build_replay_buffer()
        self._init_tokenizer()

    def _init_tokenizer(self) -> None:
        self.tokenizer = TOKENIZER

    def _setup(self) -> None: ...

    def _init_resource_pool_mgr(self) -> None: ...

    def fit(self, agent_loop_manager: Any) -> Any:
        return agent_loop_manager

    def _build_replay_buffer(self) -> Any:
        return Buffer(self.partition)

    def _dump_generations(self, **dump: Any) -> None:
        self.dumped = dump

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if batch.extra_info.get("tandem_lambda_jun") and self.workers_have_the_adapter:
            metrics["actor/junior_imitation_loss"] = 2.0
        return batch

    workers_have_the_adapter = True


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a trainer, and gives it and its TransferQueue."""

    def started(config: Any, partition: str = "train") -> Any:
        trainer = in_tandem(TrainerV1, trainer_v1.TrainerInTandem)(prepared(config), partition)
        queue = Queue(trainer._tandem.rules.fingerprint)
        monkeypatch.setattr(trainer_v1, "queue", lambda: queue)
        return trainer, queue

    return started


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
    start: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer, _ = start(IN_TANDEM)
    said = capsys.readouterr().out
    assert "tandem is on: schedule=word p=0.5 cap=4 boundaries=word" in said
    assert f"fingerprint={trainer._tandem.rules.fingerprint}" in said
    _, metrics = trainer.replay_buffer.sample()
    assert metrics == {
        "other": 1,
        "tandem/senior_share": 3 / 5,
        "tandem/spans_per_response": 5 / 2,
        "tandem/handoffs_per_response": 3 / 2,
        "tandem/responses_without_senior": 0,
        "tandem/prompts_without_senior": 0,
        "tandem/tokens_of_unknown_author": 0,
    }


def test_v1_dump_carries_what_a_replay_needs_and_no_made_up_rows(start: Any) -> None:
    trainer, _ = start(configuration({"schedule": "word"}, rollout_data_dir="folder"))
    trainer.replay_buffer.sample()
    dumped = dump(trainer)
    assert dumped["outputs"] == ["y", "x"]
    assert dumped["reward_extra_infos_dict"] == {
        "uid": ["u_1_0", "u_0_0"],
        "response_ids": TOKENS[::-1],
        "authorship": MASKS[::-1],
        "tandem_seed": SEEDS[::-1],
        "tandem_fingerprint": [trainer._tandem.rules.fingerprint] * 2,
        "tandem_schedule": [{"schedule": "word"}] * 2,
        "tandem_junior": [None, None],
        "tandem_segments": SEGMENTS[::-1],
        "tandem_unknown": [None, None],
        "tandem_segment_schedules": [None, None],
    }


def test_v1_trainer_has_the_mode_that_verl_compares(start: Any) -> None:
    assert start(IN_TANDEM)[0].config.trainer.v1.trainer_mode == "sync"


@pytest.mark.parametrize("config", [IN_TANDEM, prepared(PLAIN)], ids=["not prepared", "plain"])
def test_v1_trainer_that_the_driver_did_not_prepare_is_refused(config: Any) -> None:
    with refused("TP532"):
        in_tandem(TrainerV1, trainer_v1.TrainerInTandem)(config)


def test_v1_trains_with_a_manager_of_ours_alone(start: Any) -> None:
    trainer, _ = start(IN_TANDEM)
    ours = object.__new__(ManagerInTandem)
    assert trainer.fit(ours) is ours
    with refused("TP375"):
        trainer.fit(SimpleNamespace())


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (lambda row: facts_of(row, RULES.fingerprint, [1, 0]), "3 response .* 2 entries of auth"),
        (lambda row: None, "has no authorship"),
    ],
)
def test_v1_stops_on_a_row_that_is_not_tandems(start: Any, facts: Any, sentence: str) -> None:
    trainer, queue = start(IN_TANDEM)
    queue.told[0][FACTS] = facts(0)
    with refused("TP406", "TP407", row="Row u_0_0"):
        trainer.replay_buffer.sample()
    queue.columns["extra_fields"][0] = None  # as rows of other loops may have it
    with refused("TP406", row="Row u_0_0"):
        trainer.replay_buffer.sample()


def test_v1_stops_on_a_loss_mask_that_is_not_narrowed(start: Any) -> None:
    trainer, queue = start(IN_TANDEM)
    queue.columns["loss_mask"] = nested([[1, 1, 1], [0, 1]])
    with refused("TP416", name="loss_mask", row="Row u_0_0"):
        trainer.replay_buffer.sample()


def test_v1_stops_on_the_complement_of_the_replay(start: Any) -> None:
    trainer, queue = start(IN_TANDEM)
    for column in ("response_mask", "loss_mask"):
        queue.columns[column] = nested(complement(MASKS))
    for row, senior in enumerate(complement(MASKS)):
        queue.told[row][FACTS] = facts_of(row, RULES.fingerprint, senior)
    with refused("TP411", row="Row u_0_0"):
        trainer.replay_buffer.sample()


@pytest.mark.parametrize("update", ["_update_actor", "_update_critic"])
@pytest.mark.parametrize("column", ["response_mask", "loss_mask"])
def test_v1_stops_on_a_mask_that_changes_before_an_update(
    start: Any, column: str, update: str
) -> None:
    trainer, queue = start(IN_TANDEM)
    trainer.replay_buffer.sample()
    getattr(trainer, update)(whole_batch(), {})
    queue.columns[column] = nested(complement(MASKS))
    with refused("TP421", row="Row u_0_0", name=column):
        getattr(trainer, update)(whole_batch(), {})


def test_v1_update_may_leave_out_what_rejection_sampling_rejects(start: Any) -> None:
    """In bypass mode the loss rejects, and no mask changes before it."""
    for rejects, correction in (
        (False, {"rollout_rs": None}),
        (True, {"rollout_rs": "token_k1"}),
        (False, {"rollout_rs": "token_k1", "bypass_mode": True}),
    ):
        config = configuration({"schedule": "word", "cap": 4})
        config.algorithm.rollout_correction = correction
        trainer, queue = start(config)
        trainer.replay_buffer.sample()
        queue.columns["response_mask"] = nested([[0, 0, 1], [0, 0]])
        if rejects:
            trainer._update_actor(whole_batch(), {})
        else:
            with refused("TP421"):
                trainer._update_actor(whole_batch(), {})


def test_v1_stops_on_a_trajectory_that_the_engine_refused(start: Any) -> None:
    for partition in ("train", "val"):
        trainer, queue = start(IN_TANDEM, partition)
        queue.told[1]["tandem_error"] = "RequestError: no"
        with refused("TP405", error="RequestError: no"):
            trainer.replay_buffer.sample()


def test_v1_validation_is_not_measured(start: Any) -> None:
    trainer, queue = start(IN_TANDEM, "val")
    queue.columns["extra_fields"] = Listed([{}, {}])
    assert trainer.replay_buffer.sample()[1] == {"other": 1}


def whole_batch() -> Any:
    return SimpleNamespace(
        keys=["u_0_0", "u_1_0"], partition_id="train", extra_info={"epochs": 1}, tags=[{}, {}]
    )


def test_v1_tells_the_workers_to_imitate_and_stops_when_they_do_not(start: Any) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    trainer, queue = start(IMITATING)
    trainer.replay_buffer.sample()
    metrics: dict[str, Any] = {}
    told = trainer._update_actor(whole_batch(), metrics)
    assert told.extra_info == {"epochs": 1, "tandem_lambda_jun": 0.2}
    assert queue.put == {"junior_mask": [[0, 1, 0], [1, 0]]}
    assert metrics == {"actor/junior_imitation_loss": 2.0}
    trainer.workers_have_the_adapter = False
    with refused("TP450"):
        trainer._update_actor(whole_batch(), {})
    plain, queue = start(IN_TANDEM)
    plain.replay_buffer.sample()
    assert plain._update_actor(whole_batch(), {}).extra_info == {"epochs": 1}
    assert queue.put == {}


@pytest.mark.parametrize(
    ("trained", "code"),
    [
        ((), "TP416"),
        (((0, 2),), "TP416"),
    ],
)
def test_v1_stops_on_other_tokens_to_imitate_than_the_loop_would_train(
    start: Any, trained: Any, code: str
) -> None:
    """What is imitated is not said apart: it is what the loop would train and the junior wrote."""
    trainer, queue = start(IMITATING)
    queue.told[0][FACTS] = {**queue.told[0][FACTS], "trained": trained}
    with refused(code):
        trainer.replay_buffer.sample()


def test_refused_setting_stops_the_trainer() -> None:
    with refused("TP117", kind="schedule", name="words"):
        in_tandem(TrainerV1, trainer_v1.TrainerInTandem)(
            prepared(configuration({"schedule": "words"}))
        )
