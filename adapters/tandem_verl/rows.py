"""What the trainer's checks see of verl's batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem_plugin.training.authorship_wire import ERROR, FACTS, Facts
from tandem_plugin.training.metrics import graded
from tandem_plugin.training.rows import Row, dumped_columns, row_of

__all__ = ["dumped_with", "rows_of_keys"]

_LISTS = ("inputs", "outputs", "gts", "scores")
"""What verl dumps of each row."""


def rows_of_keys(batch: Any, tq: Any) -> list[Row]:
    """The rows of a V1 batch, which holds keys of TransferQueue.

    What tandem says of a row is in its ``extra_fields``.
    """
    if not batch.keys:
        return []
    fields = ["responses", "response_mask", "loss_mask", "rollout_log_probs", "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)

    def column(name: str) -> Sequence[Any]:
        if name not in data.keys():  # noqa: SIM118  # a TensorDict is no mapping
            return [None] * len(batch.keys)
        return [None if row is None else row.numpy() for row in data[name].unbind()]

    extras = [one if isinstance(one, dict) else {} for one in data.get("extra_fields").tolist()]
    return [
        row_of(
            Facts.from_wire(extra.get(FACTS)),
            name=f"Row {key}",
            group=str(key).rsplit("_", 2)[0],
            response_ids=responses,
            response_mask=response_mask.astype(np.bool_),
            loss_mask=None if loss_mask is None else loss_mask.astype(np.bool_),
            rollout_log_probs=log_probs,
            error=extra.get(ERROR),
            graded=graded(extra.get("reward_extra_info")),
        )
        for key, responses, response_mask, loss_mask, log_probs, extra in zip(
            batch.keys, *map(column, fields[:4]), extras, strict=True
        )
    ]


def dumped_with(dump: dict[str, Any], rows: Sequence[Row | None]) -> dict[str, Any]:
    """The arguments of a dump with tandem's columns, without the rows that are None.

    Those are what verl made up to fill a batch; where all are, the dump is not tandem's.
    """
    kept = [i for i, row in enumerate(rows) if row is not None]
    if not kept:
        return dump
    columns = {
        name: [values[i] for i in kept] if len(values) == len(rows) else values
        for name, values in dump["reward_extra_infos_dict"].items()
    }
    columns |= dumped_columns([row for row in rows if row is not None])
    lists = {name: [dump[name][i] for i in kept] for name in _LISTS}
    return {**dump, **lists, "reward_extra_infos_dict": columns}
