"""What a trainer was let learn from, held against what its update is about to use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.training.rows import Row

__all__ = ["AdmittedBatch"]


class AdmittedBatch:
    """The masks of the batch that was checked last, by its rows' names."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._masks = {row.name: row.response_mask for row in rows}

    def check(self, rows: Sequence[Row], rejects: bool) -> None:
        """Raise :class:`AuthorshipError` unless an update trains on what was admitted.

        rows: those of the update, with the masks that the loss will use. Rows that are not of the
        batch are the trainer's padding, and train nothing. rejects: whether the trainer may leave
        tokens out, as rejection sampling does; none may be added.
        """
        for row in rows:
            masks = {"response_mask": row.response_mask, "loss_mask": row.loss_mask}
            for name, mask in masks.items():
                if mask is not None:
                    self._check_mask(row.name, name, mask, rejects)

    def _check_mask(self, row: str, name: str, mask: NDArray[np.bool_], rejects: bool) -> None:
        admitted = self._masks.get(row)
        if admitted is None:
            if mask.any():
                raise AuthorshipError(
                    f"{row} trains {int(mask.sum())} tokens, and was not among the rows that the "
                    "trainer checked before the update: something in the trainer's process adds "
                    "rows, or keeps batches from the check. Use verl's own trainers."
                )
            return
        if len(mask) != len(admitted):
            raise AuthorshipError(
                f"{row} had {len(admitted)} response tokens when it was checked, and has "
                f"{len(mask)} entries of {name} before the update."
            )
        changed = mask & ~admitted if rejects else mask != admitted
        if changed.any():
            raise AuthorshipError(
                f"The {name} of {row} changed between the trainer's check and the update, at "
                f"{int(changed.sum())} tokens, the first at position {int(changed.argmax())}: "
                "something in the trainer's process writes masks. Remove it, since what the senior "
                "wrote was settled before."
            )
