"""Engines with images made wrong, in their worker: what the tests must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tandem_plugin.engine.images import Images

_right: dict[str, Any] = {}


def swap_halves(worker: Any) -> None:
    """Each model gets the other's encoding."""

    def swapped(width: int, encoding: torch.Tensor) -> torch.Tensor:
        return torch.cat([encoding[:, width:], encoding[:, :width]], dim=-1)

    _merge_of(swapped)


def share_the_seniors(worker: Any) -> None:
    """Both models get the senior's encoding."""

    def shared(width: int, encoding: torch.Tensor) -> torch.Tensor:
        return encoding[:, :width].repeat(1, 2)

    _merge_of(shared)


def _merge_of(change: Callable[[int, torch.Tensor], torch.Tensor]) -> None:
    merge = _right.setdefault("merge", Images.merge)

    def wrong(self: Any, ids: Any, encodings: Sequence[torch.Tensor], **options: Any) -> Any:
        changed = [change(self._seniors_width, encoding) for encoding in encodings]
        return merge(self, ids, changed, **options)

    Images.merge = wrong  # type: ignore[method-assign]


def encoding_widths(worker: Any) -> list[int]:
    """Values of both models' embeddings of a token, by their buffers."""
    runner = worker.model_runner
    buffers = (runner.inputs_embeds.gpu, runner.get_model().tandem_juniors_embeddings)
    return [int(buffer.shape[-1]) for buffer in buffers]


def mend(worker: Any) -> None:
    for name, right in _right.items():
        setattr(Images, name, right)
