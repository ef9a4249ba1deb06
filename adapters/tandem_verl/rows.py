"""What the trainer's checks see of verl's batches, in one form for both of its trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tandem_plugin.training.fields import (
    AUTHORSHIP,
    COLUMNS,
    ERROR,
    FINGERPRINT,
    GRADED,
    JUNIOR_MASK,
    SCHEDULE,
    SEED,
    SEGMENTS,
    TRAINED,
)
from tandem_plugin.training.ranges import bits_of
from tandem_plugin.training.rows import Row

__all__ = ["columns_of", "graded", "padded_junior_mask", "rows_of_batch", "rows_of_keys"]


def rows_of_keys(batch: Any, tq: Any) -> list[Row]:
    """The rows of a V1 batch, which holds keys of TransferQueue.

    What tandem says of a row is in its ``extra_fields``.
    """
    if not batch.keys:
        return []
    fields = ["responses", "response_mask", "loss_mask", "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)

    def column(name: str) -> Sequence[Any]:
        if name not in data.keys():  # noqa: SIM118  # a TensorDict is no mapping
            return [None] * len(batch.keys)
        values = data[name]
        return list(values.unbind()) if hasattr(values, "unbind") else values.tolist()

    extras = data.get("extra_fields").tolist()
    return [
        Row(
            name=f"Row {key}",
            group=str(key).rsplit("_", 2)[0],
            response_ids=responses.numpy(),
            response_mask=_bits(response_mask),
            loss_mask=_bits(loss_mask),
            error=extra.get(ERROR) if isinstance(extra, dict) else None,
            **_told(extra if isinstance(extra, dict) else {}, len(responses)),
            graded=graded(extra.get("reward_extra_info") if isinstance(extra, dict) else None),
        )
        for key, responses, response_mask, loss_mask, extra in zip(
            batch.keys,
            *(column(name) for name in ("responses", "response_mask", "loss_mask")),
            extras,
            strict=True,
        )
    ]


def rows_of_batch(batch: Any) -> list[Row]:
    """The rows of a V0 batch, padded to one length."""
    responses = batch.batch["responses"].cpu().numpy()
    mask = batch.batch["response_mask"].cpu().numpy().astype(np.bool_)
    width = responses.shape[1]
    lengths = batch.batch["attention_mask"][:, -width:].sum(dim=1).tolist()
    columns = batch.non_tensor_batch
    told = (*COLUMNS, JUNIOR_MASK)

    def trimmed(row: int) -> Any:
        """The mask without its padding, and with it where it trains on padding."""
        length = lengths[row]
        return mask[row] if mask[row, length:].any() else mask[row, :length]

    return [
        Row(
            name=f"Row {i} ({columns['uid'][i]})",
            group=str(columns["uid"][i]),
            response_ids=responses[i, : lengths[i]],
            response_mask=trimmed(i),
            **_told({name: columns[name][i] for name in told if name in columns}, lengths[i]),
            graded=graded({name: columns[name][i] for name in columns}),
        )
        for i in range(len(responses))
    ]


def _told(fields: Mapping[str, Any], length: int) -> dict[str, Any]:
    """What tandem says of a response of this length, as fields of its row."""
    trained = fields.get(TRAINED)
    return {
        "authorship": _bits(fields.get(AUTHORSHIP)),
        "junior_mask": _bits(fields.get(JUNIOR_MASK)),
        "seed": fields.get(SEED),
        "fingerprint": fields.get(FINGERPRINT),
        "settings": fields.get(SCHEDULE),
        "segments": fields.get(SEGMENTS) or [],
        "trained": None if trained is None else bits_of(trained, length),
    }


def _bits(values: Any) -> Any:
    return None if values is None else np.asarray(values).astype(np.bool_)


def columns_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    dumped = [row.dump() for row in rows]
    return {name: [row[name] for row in dumped] for name in dumped[0]}


def padded_junior_mask(batch: Any) -> Any:
    """The tokens to imitate of a V0 batch, int64 of the shape of its ``response_mask``.

    Their lists leave the batch: a column is a tensor or an array in it, never both.
    """
    import torch

    mask = torch.zeros_like(batch.batch["response_mask"], dtype=torch.int64)
    for row, bits in enumerate(batch.non_tensor_batch.pop(JUNIOR_MASK)):
        mask[row, : len(bits)] = torch.as_tensor(list(bits), dtype=torch.int64)
    return mask


def graded(reward: Any) -> dict[str, float]:
    """The outcome flags among what a reward function returned."""
    if not isinstance(reward, dict):
        return {}
    flags = {name: value for name, value in reward.items() if str(name).startswith(GRADED)}
    return {name: float(value) for name, value in flags.items() if value is not None}
