"""The rows of verl's batches, and their columns in its dumps."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_plugin.training.rows import Row

if TYPE_CHECKING:
    from transfer_queue import KVBatchMeta

_LISTS = ("inputs", "outputs", "gts", "scores")
"""The columns that verl dumps for each row."""


def rows_of_keys(batch: KVBatchMeta, tq: ModuleType) -> list[Row]:
    """The rows of a V1 batch, which contains keys of TransferQueue."""
    if not batch.keys:
        return []
    fields = ["responses", "response_mask", "loss_mask", "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)

    def column(name: str) -> Sequence[Any]:
        if name not in data.keys():  # noqa: SIM118  # a TensorDict is no mapping
            return [None] * len(batch.keys)
        return [None if row is None else row.numpy() for row in data[name].unbind()]

    extras = [
        fields_of_row if isinstance(fields_of_row, dict) else {}
        for fields_of_row in data.get("extra_fields").tolist()
    ]
    return [
        Row.received(
            f"Row {key}",
            str(key).rsplit("_", 2)[0],
            responses,
            response_mask.astype(np.bool_),
            extra,
            None if loss_mask is None else loss_mask.astype(np.bool_),
        )
        for key, responses, response_mask, loss_mask, extra in zip(
            batch.keys, *map(column, fields[:3]), extras, strict=True
        )
    ]


def dumped_with(dump: dict[str, Any], rows: Sequence[Row | None]) -> dict[str, Any]:
    """The arguments of a dump with tandem's columns, without padding, whose rows are None."""
    places = [i for i, row in enumerate(rows) if row is not None]
    if not places:
        return dump
    columns = {
        name: [values[i] for i in places] if len(values) == len(rows) else values
        for name, values in dump["reward_extra_infos_dict"].items()
    }
    columns |= Row.dumped([row for row in rows if row is not None])
    lists = {name: [dump[name][i] for i in places] for name in _LISTS}
    return {**dump, **lists, "reward_extra_infos_dict": columns}


def move_scores(batch: Any, tq: Any) -> None:
    """Move each token's score in a V1 batch to the trained token at or before it, else the first.

    A row without a trained token keeps its scores. Sums, and so metrics and dumps, stay the same.
    """
    import torch
    from tensordict import TensorDict

    fields = ["rm_scores", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)

    def moved(scores: Any, mask: Any) -> Any:
        trained = torch.nonzero(mask)[:, 0]
        if not len(trained):
            return scores
        before = torch.searchsorted(trained, torch.arange(len(mask)), right=True) - 1
        return torch.zeros_like(scores).index_add_(0, trained[before.clamp(min=0)], scores)

    rows = [moved(*row) for row in zip(*(data[name].unbind() for name in fields), strict=True)]
    scores = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    column = TensorDict({"rm_scores": scores}, batch_size=len(rows))
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=column)


def queue() -> ModuleType:
    """TransferQueue, which holds the batches of trainer V1."""
    import transfer_queue

    return transfer_queue  # type: ignore[no-any-return]
