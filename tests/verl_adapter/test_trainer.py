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
    TOKENIZER,
    TOKENS,
    configuration,
    facts_of,
    nested,
    prepared,
    tandem_of,
)

from tandem_plugin.patching.mixins import in_tandem
from tandem_plugin.training.authorship_wire import ERROR, FACTS
from tandem_plugin.training.metrics import batch_metrics
from tandem_plugin.training.rows import dumped_columns
from tandem_plugin.training.validation import ANSWERER
from tandem_verl.agent_loop import ROW
from tandem_verl.manager import ManagerInTandem
from tandem_verl.rows import rows_of_keys
from tandem_verl.trainer import AddressedPrompts, TrainerInTandem


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


class TrainerV1:
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

    def _validate(self) -> dict[str, float]:
        return {}

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None: ...

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
        trainer = in_tandem(TrainerV1, TrainerInTandem)(prepared(config), partition)
        queue = Queue(trainer._tandem.rules.fingerprint)
        monkeypatch.setattr("tandem_verl.trainer.queue", lambda: queue)
        return trainer, queue

    return started


def test_v1_says_that_tandem_is_on_and_measures_every_batch(
    start: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer, queue = start(IN_TANDEM)
    said = capsys.readouterr().out
    assert "tandem is on: schedule=word p=0.5 cap=4 boundaries=word" in said
    assert f"fingerprint={trainer._tandem.rules.fingerprint}" in said
    batch, metrics = trainer.replay_buffer.sample()
    assert metrics == {"other": 1, **batch_metrics(rows_of_keys(batch, queue))}
    assert metrics["tandem/senior_share"] == 3 / 5


def test_v1_dump_carries_what_a_replay_needs_and_no_made_up_rows(start: Any) -> None:
    trainer, queue = start(configuration({"schedule": "word"}, rollout_data_dir="folder"))
    batch, _ = trainer.replay_buffer.sample()
    trainer._dump_generations(
        inputs=["", "b", "a"],
        outputs=["", "y", "x"],
        gts=[None, 1, 0],
        scores=[0.0, 1.0, 0.5],
        reward_extra_infos_dict={"uid": ["padded_0_0", "u_1_0", "u_0_0"]},
        dump_path="folder",
    )
    assert trainer.dumped["outputs"] == ["y", "x"]
    rows = rows_of_keys(batch, queue)[::-1]
    assert trainer.dumped["reward_extra_infos_dict"] == {
        "uid": ["u_1_0", "u_0_0"],
        **dumped_columns(rows),
    }


@pytest.mark.parametrize("config", [IN_TANDEM, prepared(PLAIN)], ids=["not prepared", "plain"])
def test_v1_trainer_that_the_driver_did_not_prepare_is_refused(config: Any) -> None:
    with refused("TP532"):
        in_tandem(TrainerV1, TrainerInTandem)(config)


def test_v1_trains_with_a_manager_of_ours_alone(start: Any) -> None:
    trainer, _ = start(IN_TANDEM)
    assert trainer.config.trainer.v1.trainer_mode == "sync"  # which verl compares
    ours = object.__new__(ManagerInTandem)
    assert trainer.fit(ours) is ours
    with refused("TP375"):
        trainer.fit(SimpleNamespace())


EXTRAS = "extra_fields"


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({FACTS: facts_of(0, "", [1, 0])}, "TP407"),
        ({FACTS: None}, "TP406"),
        (None, "TP406"),  # as rows of other loops may have it
    ],
)
def test_v1_stops_on_a_row_that_is_not_tandems(start: Any, extra: Any, code: str) -> None:
    trainer, queue = start(IN_TANDEM)
    queue.columns[EXTRAS][0] = extra
    with refused(code, row="Row u_0_0"):
        trainer.replay_buffer.sample()


@pytest.mark.parametrize("update", ["_update_actor", "_update_critic"])
@pytest.mark.parametrize("column", ["response_mask", "loss_mask"])
def test_v1_stops_on_a_mask_that_changes_before_an_update(
    start: Any, column: str, update: str
) -> None:
    trainer, queue = start(IN_TANDEM)
    trainer.replay_buffer.sample()
    getattr(trainer, update)(whole_batch(), {})
    queue.columns[column] = nested([[1 - bit for bit in mask] for mask in MASKS])
    with refused("TP421", row="Row u_0_0", name=column):
        getattr(trainer, update)(whole_batch(), {})


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
def test_v1_stops_on_a_trajectory_that_the_engine_refused(start: Any, partition: str) -> None:
    trainer, queue = start(IN_TANDEM, partition)
    queue.columns[EXTRAS] = Listed([{}, {ERROR: "RequestError: no"}])
    with refused("TP405", error="RequestError: no"):
        trainer.replay_buffer.sample()
    if partition == "val":  # which is not measured
        queue.columns[EXTRAS] = Listed([{}, {}])
        assert trainer.replay_buffer.sample()[1] == {"other": 1}


def whole_batch() -> Any:
    return SimpleNamespace(
        keys=["u_0_0", "u_1_0"], partition_id="train", extra_info={"epochs": 1}, tags=[{}, {}]
    )


def test_v1_tells_the_workers_to_imitate_and_stops_when_they_do_not(start: Any) -> None:
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


def test_refused_setting_stops_the_trainer() -> None:
    with refused("TP117", kind="schedule", name="words"):
        in_tandem(TrainerV1, TrainerInTandem)(prepared(configuration({"schedule": "words"})))


def test_trainer_that_merges_validations_is_refused(start: Any) -> None:
    trainer, _ = start(IN_TANDEM)
    with refused("TP531"):
        trainer._validate(merged=True)


def test_addressed_prompts_are_otherwise_verls_own() -> None:
    class Loader(list[Any]):
        dataset = "the data set"

    batches = [{"raw_prompt": ["a", "b"]}, {"raw_prompt": ["c"]}]
    prompts = AddressedPrompts(Loader(batches), "team")
    assert (len(prompts), prompts.dataset) == (2, "the data set")
    found = list(prompts)
    assert [batch["raw_prompt"] for batch in found] == [["a", "b"], ["c"]]
    assert [batch[ANSWERER].tolist() for batch in found] == [["team"] * 2, ["team"]]
    assert [batch[ROW].tolist() for batch in found] == [[0, 1], [2]]
    assert batches[0].keys() == {"raw_prompt"}
