"""A trainer of fifty lines that knows nothing of tandem: agent loops, one mask, GRPO, no padding.

What a third framework looks like to its adapter. Its loss is the shared suite's own formula in
tensor operations, so that it can be held to the same gradients as the real trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

__version__ = "1.0"

CLIP, DUAL_CLIP, EPSILON = 0.2, 3.0, 1e-6


class Client(Protocol):
    """Generates: ``extra`` is what becomes ``SamplingParams.extra_args``."""

    def generate(self, prompt_ids: Sequence[int], extra: dict[str, Any]) -> list[int]: ...


@dataclass
class Sample:
    """One response as a loop puts it together; the tokens to train have a 1 in the mask."""

    group: int
    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    reward: float
    old_log_probs: torch.Tensor | None = None
    extra: dict[str, Any] = field(default_factory=dict)


Loop = Callable[[Client], Sample]


class ToyTrainer:
    """Runs a step's loops, one a response, and updates the model on what they return."""

    def __init__(self, client: Client, model: Any, longest: int) -> None:
        self.client, self.model, self.longest = client, model, longest
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.steps = 0

    def step(self, loops: Sequence[Loop]) -> dict[str, float]:
        samples = [self.run(loop, number, self.client) for number, loop in enumerate(loops)]
        metrics = self.update(samples)
        self.optimizer.step()
        self.steps += 1
        return metrics

    def run(self, loop: Loop, number: int, client: Client) -> Sample:
        """One response, cut off after so many tokens; ``number``: its place in the step."""
        sample = loop(client)
        sample.response_ids = sample.response_ids[: self.longest]
        sample.mask = sample.mask[: self.longest]
        return sample

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """The gradient of the clipped loss, as a mean over the tokens that are trained."""
        self.optimizer.zero_grad()
        losses = [self.losses(one, a) for one, a in zip(samples, advantages(samples), strict=True)]
        loss = torch.cat(losses).mean()
        loss.backward()
        return {"loss": float(loss.detach())}

    def losses(self, sample: Sample, advantage: float) -> torch.Tensor:
        ids = torch.tensor([[*sample.prompt_ids, *sample.response_ids]])
        log_probs = self.model(ids).logits[0, len(sample.prompt_ids) - 1 : -1].log_softmax(-1)
        now = log_probs.gather(1, ids[0, len(sample.prompt_ids) :, None])[:, 0]
        old = now.detach() if sample.old_log_probs is None else sample.old_log_probs
        ratio = (now - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        if advantage < 0:
            gain = gain.clamp(min=DUAL_CLIP * advantage)
        return -gain[torch.tensor(sample.mask, dtype=torch.bool)]


def advantages(samples: Sequence[Sample]) -> list[float]:
    """Each reward against those of its group: (r - mean) / (standard deviation + epsilon)."""
    groups = {
        one.group: [two.reward for two in samples if two.group == one.group] for one in samples
    }
    rewards = {group: torch.tensor(values) for group, values in groups.items()}
    return [
        float((one.reward - rewards[one.group].mean()) / (rewards[one.group].std() + EPSILON))
        for one in samples
    ]
