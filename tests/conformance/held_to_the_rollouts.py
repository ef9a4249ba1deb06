"""What the adapter of any trainer is held to: subclass, say what it makes of a rollout, run pytest.

A test module of a third adapter needs no more than

    class TestMyAdapter(HeldToTheRollouts):
        def masks(self, rollout): ...
        def gradient(self, mode): ...
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from shared_rollouts import LONGEST, Rollout, reference_gradients, relative_error, rollouts


class HeldToTheRollouts:
    """The shared rollouts, and the masked GRPO of an independent loop in float64."""

    modes: ClassVar[tuple[str, ...]] = ("token-mean",)
    """The aggregations of the trainer's loss, by the names of
    :func:`~shared_rollouts.reference_gradients`."""
    epsilon: ClassVar[float] = 1e-6
    """What the trainer adds to the standard deviation of a group's rewards."""

    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        """What the adapter makes of a rollout: the mask to train, and the tokens to imitate.

        Zeros and ones over the response's tokens, of which there are at most ``LONGEST``.
        """
        raise NotImplementedError

    def gradient(self, mode: str) -> Any:
        """A :func:`~shared_rollouts.tiny_model` with the gradient of the trainer's own loss.

        Of all rollouts, as one update, under the masks that the adapter makes.
        """
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "rollout" in metafunc.fixturenames:
            metafunc.parametrize("rollout", rollouts(), ids=lambda one: one.name)
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", self.modes)

    def test_mask_bits_are_algorithm_1s(self, rollout: Rollout) -> None:
        assert self.masks(rollout)[0] == rollout.mask(LONGEST)

    def test_tokens_to_imitate_are_the_juniors(self, rollout: Rollout) -> None:
        assert self.masks(rollout)[1] == rollout.junior_mask(LONGEST)

    def test_gradient_is_that_of_masked_grpo(self, mode: str) -> None:
        reference = reference_gradients(rollouts(), mode, self.epsilon)
        assert relative_error(self.gradient(mode), reference) <= 1e-5
