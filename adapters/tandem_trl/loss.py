"""TRL's loss, computed only with masks that were admitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.training.rows import Row

if TYPE_CHECKING:
    from torch import nn

Inputs = Mapping[str, Any]
"""What TRL gives its loss: tensors ``[rows, length]`` by name."""


def checked_loss(
    check: Callable[[Inputs], None],
    loss: Callable[..., Any],
    model: nn.Module,
    inputs: Inputs,
    *args: Any,
    **options: Any,
) -> Any:
    """TRL's loss, once ``check`` accepted its inputs.

    Touches: ``compute_loss`` of one ``GRPOTrainer`` (TRL 1.16). Goes when: TRL calls a callback
    with the inputs of a loss.
    """
    if model.training:
        check(inputs)
    return loss(model, inputs, *args, **options)


class AdmittedTexts:
    """The rows of an admitted batch by their text, for a trainer in whose batches they lose their
    names."""

    def __init__(self, responses: Iterable[tuple[ArrayLike, Row]] = ()) -> None:
        """responses: each prompt's token ids, and the row that answers it."""
        self._rows: dict[tuple[bytes, bytes], list[Row]] = {}
        for prompt_ids, row in responses:
            self._rows.setdefault(_text(prompt_ids, row.response_ids), []).append(row)

    def row(
        self, prompt_ids: ArrayLike, response_ids: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> Row:
        """A row of an update, for :meth:`AdmittedBatch.check`.

        Among several admitted responses with the same text, prefers the one with this mask.
        """
        alike = self._rows.get(_text(prompt_ids, response_ids), [])
        same = (row for row in alike if np.array_equal(row.response_mask, mask))
        admitted = next(same, alike[0] if alike else None)
        name = "A response that no rollout returned" if admitted is None else admitted.name
        return Row(name, "", response_ids, mask)


def _text(prompt_ids: ArrayLike, response_ids: ArrayLike) -> tuple[bytes, bytes]:
    """Prompt and response as a key, from any integer types."""
    return np.asarray(prompt_ids, np.int64).tobytes(), np.asarray(response_ids, np.int64).tobytes()
