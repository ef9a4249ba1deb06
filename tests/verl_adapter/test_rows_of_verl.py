"""Rows as verl makes and pads them, between an agent loop and an update of trainer V1."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.authorship_wire import (
    FACTS,
    Facts,
    ranges_of,
)
from tandem_plugin.training.run import TandemRun
from tandem_verl import imitation
from tandem_verl.agent_loop import (
    ROW,
    TandemClient,
    make_trajectory,
    narrow,
)
from tandem_verl.rows import rows_of_keys

ANSWERS = [[3, 4, 6, 7, 9, 10], [12, 13], [15, 16, 18, 1], [5]]


class Queue:
    """TransferQueue: rows as verl puts them, and its batches made of them as it does."""

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self.rows = rows

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        rows = [{name: self.rows[key].get(name) for name in select_fields} for key in keys]
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        return list_of_dict_to_tensordict(rows)

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> Any:
        for key, mask in zip(keys, fields["junior_mask"].unbind(), strict=True):
            self.rows[key] = {**self.rows[key], "junior_mask": mask}
        return SimpleNamespace(keys=keys, partition_id=partition_id)


def trainer(**settings: Any) -> TandemRun:
    config = TandemConfig.from_mapping({"schedule": "word", "seed": 3, **settings})
    vocabulary = Vocabulary(tuple(f"Ġ{i}" if i % 3 == 0 else str(i) for i in range(24)), "a test")
    return TandemRun(config, TandemRules(config, vocabulary))


def generated(tandem: TandemRun, session: int) -> Any:
    """verl's output of one session: two calls, feedback between them."""
    identity = (
        {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False},
        {ROW: 0, "session_id": session},
    )
    trajectory = make_trajectory(tandem.rules, *identity)
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
    narrow(output, trajectory)
    return output


@pytest.fixture(params=[0.0, 0.2], ids=["", "imitating"])
def batch(request: pytest.FixtureRequest) -> Any:
    """Two rows, and one that verl made up to fill the batch."""
    tandem = trainer(lambda_jun=request.param)
    rows = {}
    for session in range(2):
        fields = generated(tandem, session).as_dict()
        fields["loss_mask"] = fields["response_mask"]
        rows[f"u_{session}_0"] = fields
    padding, tag = construct_minimal_padding_template(dict(rows["u_0_0"]), {}, 0)
    return SimpleNamespace(
        tandem=tandem,
        queue=Queue({**rows, "pad_0_0": padding}),
        keys=SimpleNamespace(keys=list(rows), partition_id="train"),
        filled=SimpleNamespace(
            keys=["pad_0_0", *reversed(rows)],
            partition_id="train",
            tags=[tag, {}, {}],
            extra_info={},
        ),
    )


def test_rows_are_admitted_and_their_update_is_with_padding_and_in_another_order(
    batch: Any,
) -> None:
    rows = rows_of_keys(batch.keys, batch.queue)
    assert [len(row.segments) for row in rows] == [2, 2]
    assert any(row.response_mask.any() for row in rows)
    batch.tandem.admit(rows)
    batch.tandem.check_update(rows_of_keys(batch.filled, batch.queue))


@pytest.mark.parametrize(("key", "code"), [("u_1_0", "TP421"), ("pad_0_0", "TP419")])
@pytest.mark.parametrize("column", ["response_mask", "loss_mask"])
def test_update_of_other_masks_is_refused(batch: Any, key: str, code: str, column: str) -> None:
    batch.tandem.admit(rows_of_keys(batch.keys, batch.queue))
    mask = batch.queue.rows[key][column]
    batch.queue.rows[key] = {**batch.queue.rows[key], column: 1 - mask}
    with refused(code):
        batch.tandem.check_update(rows_of_keys(batch.filled, batch.queue))


def test_complement_of_a_row_is_refused(batch: Any) -> None:
    row = batch.queue.rows["u_1_0"]
    for column in ("response_mask", "loss_mask"):
        row[column] = 1 - row[column]
    facts = row["extra_fields"][FACTS]
    authorship = Facts.from_wire(facts).authorship  # type: ignore[union-attr]
    row["extra_fields"][FACTS] = {**facts, "senior": ranges_of(~authorship)}
    with refused("TP411", row="Row u_1_0"):
        batch.tandem.admit(rows_of_keys(batch.keys, batch.queue))


def test_rollout_log_probs_of_the_juniors_tokens_stop_training(batch: Any) -> None:
    """verl's rows have them zero outside the mask; a run need not have them."""
    row = batch.queue.rows["u_1_0"]
    mask = row["response_mask"].bool()
    assert 0 < mask.sum() < len(mask)
    assert row["rollout_log_probs"].tolist() == torch.where(mask, -0.5, 0.0).tolist()
    row["rollout_log_probs"][~mask] = -0.5
    with refused("TP433"):
        batch.tandem.admit(rows_of_keys(batch.keys, batch.queue))
    for one in batch.queue.rows.values():
        del one["rollout_log_probs"]
    rows = rows_of_keys(batch.keys, batch.queue)
    assert [one.rollout_log_probs for one in rows] == [None, None]
    batch.tandem.admit(rows)


def test_workers_are_told_of_the_juniors_tokens_and_of_none_in_rows_that_fill_the_batch(
    batch: Any,
) -> None:
    rows = rows_of_keys(batch.filled, batch.queue)
    told = imitation.send_to_workers(batch.filled, rows, batch.queue, 0.2)
    assert told.extra_info == {imitation.LAMBDA_JUN: 0.2}
    assert told.tags == batch.filled.tags
    for key in ("u_0_0", "u_1_0"):
        fields = batch.queue.rows[key]
        facts = Facts.from_wire(fields["extra_fields"][FACTS])
        assert facts is not None
        wanted = facts.trained_mask & ~facts.authorship
        assert wanted.any()
        assert fields["junior_mask"].tolist() == wanted.astype(int).tolist()
    assert batch.queue.rows["pad_0_0"]["junior_mask"].tolist() == [0]
