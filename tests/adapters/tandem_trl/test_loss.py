"""What TRL's loss may compute with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from tandem_plugin.training.rows import Row
from tandem_trl.loss import AdmittedTexts, checked_loss


@pytest.mark.parametrize("training", [True, False])
def test_inputs_of_a_loss_are_checked_before_it_and_in_training_alone(training: bool) -> None:
    order: list[Any] = []

    def loss(model: Any, inputs: Any, *args: Any, **more: Any) -> float:
        order.append((inputs, args, more))
        return 0.5

    def check(inputs: Any) -> None:
        order.append(inputs)

    model = SimpleNamespace(training=training)
    assert checked_loss(check, loss, model, {"a": 1}, 2, num_items=3) == 0.5
    assert order == [*([{"a": 1}] if training else []), ({"a": 1}, (2,), {"num_items": 3})]


def test_response_with_the_text_of_another_is_the_one_with_its_mask() -> None:
    """Two samples of a prompt may be equal, and have other authors."""

    def row(name: str, *mask: int) -> Row:
        return Row(name, "", np.array([7, 8]), np.array(mask, np.bool_))

    texts = AdmittedTexts(
        [([1, 2], row("a", 1, 0)), ([1, 2], row("b", 0, 1)), ([3], row("c", 1, 1))]
    )

    def named(prompt: list[int], response: list[int], *mask: int) -> str:
        found = texts.row(np.int32(prompt), np.array(response), np.array(mask, np.bool_))
        assert (found.response_ids.tolist(), found.response_mask.tolist()) == (response, list(mask))
        return found.name

    assert [named([1, 2], [7, 8], *mask) for mask in ((1, 0), (0, 1), (1, 1))] == ["a", "b", "a"]
    assert named([3], [7, 8], 0, 1) == "c"
    for prompt, response in (([1], [7, 8]), ([1, 2], [8, 7])):
        assert named(prompt, response, 1, 1) == "A response that no rollout returned"
