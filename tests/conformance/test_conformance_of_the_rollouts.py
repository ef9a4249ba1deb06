"""The shared rollouts are what their names say, and the loss they are held to moves the model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from shared_rollouts import (  # noqa: E402
    CLIP,
    LONGEST,
    old_log_probs,
    response_log_probs,
    rollouts,
    tiny_model,
)


def test_every_kind_of_response_is_there() -> None:
    masks = {one.name: one.mask(LONGEST) for one in rollouts()}
    assert masks["empty"] == []
    assert masks["one token of the senior"] == [1]
    assert masks["one token of the junior"] == [0]
    assert masks["all of the senior"] == [1] * 9
    assert masks["all of the junior"] == [0] * 9
    assert 0 < sum(masks["cut off"]) < LONGEST == len(masks["cut off"])
    assert masks["two turns"][6:9] == [0] * 3
    assert len(masks["two turns, the second cut off"]) == LONGEST
    assert sum(masks["two turns, the junior's alone"]) == 0
    for one in rollouts():
        assert (one.known != one.generated) is one.name.startswith("one of two of the same text")


def test_some_ratios_are_clipped_and_some_are_not() -> None:
    with torch.no_grad():
        ratios = torch.cat(
            [
                (response_log_probs(tiny_model().double(), one) - old_log_probs(one, i)).exp()
                for i, one in enumerate(rollouts())
            ]
        )
    assert 0.2 < ((ratios - 1).abs() > CLIP).double().mean() < 0.8
