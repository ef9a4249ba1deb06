"""What the trainer's checks see of verl's batches, in one form for both of its trainers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.training.fields import (
    AUTHORSHIP,
    COLUMNS,
    ERROR,
    FINGERPRINT,
    GRADED,
    JUNIOR_MASK,
    PASSAGES,
    SCHEDULE,
    SEED,
    TRAINED,
)
from tandem_plugin.training.ranges import bits_of
from tandem_plugin.training.rows import Row

__all__ = ["columns_of", "graded", "padded_junior_mask", "rows_of_batch", "rows_of_keys"]


def rows_of_keys(batch: Any, tq: Any, columns: Sequence[str]) -> list[Row]:
    """The rows of a V1 batch, which holds keys of TransferQueue.

    columns: those of tandem's that the rows must have. Others must not be asked for, where other
    rows of the partition had them.
    """
    if not batch.keys:
        return []
    fields = ["responses", "response_mask", "loss_mask", "extra_fields"]
    try:
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=[*fields, *columns],
        )
    except ValueError as error:
        raise AuthorshipError(
            f"Some rows of the batch came without authorship or masks ({error}): the process that "
            "ran their agent loop had no active tandem adapter. Check that tandem-plugin is "
            "installed on every node."
        ) from error
    count = len(batch.keys)
    names = data.keys()

    def column(name: str) -> Sequence[Any]:
        if name not in names:
            return [None] * count
        values = data[name]
        return list(values.unbind()) if hasattr(values, "unbind") else values.tolist()

    def listed(name: str) -> Sequence[Any]:
        return data.get(name).tolist() if name in names else [None] * count

    def bits(values: Any) -> Any:
        return None if values is None else values.numpy().astype(np.bool_)

    extras = [extra if isinstance(extra, dict) else {} for extra in listed("extra_fields")]
    parts = zip(
        batch.keys,
        column("responses"),
        column("response_mask"),
        column("loss_mask"),
        column(AUTHORSHIP),
        column(JUNIOR_MASK),
        listed(SEED),
        listed(FINGERPRINT),
        extras,
        strict=True,
    )
    return [
        Row(
            name=f"Row {key}",
            group=str(key).rsplit("_", 2)[0],
            response_ids=responses.numpy(),
            response_mask=bits(response_mask),
            loss_mask=bits(loss_mask),
            authorship=bits(authorship),
            junior_mask=bits(junior_mask),
            seed=seed,
            fingerprint=fingerprint,
            settings=extra.get(SCHEDULE),
            passages=extra.get(PASSAGES) or [],
            trained=_trained(extra.get(TRAINED), len(responses)),
            error=extra.get(ERROR),
            graded=graded(extra.get("reward_extra_info")),
        )
        for (
            key,
            responses,
            response_mask,
            loss_mask,
            authorship,
            junior_mask,
            seed,
            fingerprint,
            extra,
        ) in parts
    ]


def rows_of_batch(batch: Any) -> list[Row]:
    """The rows of a V0 batch, padded to one length."""
    responses = batch.batch["responses"].cpu().numpy()
    mask = batch.batch["response_mask"].cpu().numpy().astype(np.bool_)
    width = responses.shape[1]
    lengths = batch.batch["attention_mask"][:, -width:].sum(dim=1).tolist()
    columns = batch.non_tensor_batch
    empty = [None] * len(responses)

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
            authorship=None if authorship is None else np.asarray(authorship, dtype=np.bool_),
            junior_mask=None if junior is None else np.asarray(junior, dtype=np.bool_),
            seed=seed,
            fingerprint=fingerprint,
            settings=settings,
            passages=passages or [],
            trained=_trained(trained, lengths[i]),
            graded=graded({name: columns[name][i] for name in columns}),
        )
        for i, (authorship, seed, fingerprint, settings, passages, trained, junior) in enumerate(
            zip(
                *(columns.get(name, empty) for name in (*COLUMNS, JUNIOR_MASK)),
                strict=True,
            )
        )
    ]


def _trained(ranges: Any, length: int) -> Any:
    return None if ranges is None else bits_of(ranges, length)


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
