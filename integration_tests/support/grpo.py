"""An independent reference: the masked, clipped GRPO loss of saved rollouts, by Hugging Face."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CLIP, DUAL_CLIP = 0.2, 3.0


class GRPOReference:
    """The gradient of one mini-batch, in float64, row by row and without any padding.

    entropy, kl: the coefficients of an entropy bonus and of the KL estimate "k3" to the checkpoint,
    which is also the policy that the rollouts are from.
    """

    def __init__(
        self,
        checkpoint: Path,
        rollouts: list[dict[str, Any]],
        entropy: float = 0.0,
        kl: float = 0.0,
    ) -> None:
        self.entropy, self.kl = entropy, kl
        self.model = self.load(checkpoint)
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self.rollouts = rollouts
        self.advantages = _advantages(rollouts)
        with torch.no_grad():
            self.old = [self.logprobs(row) for row in rollouts]

    def load(self, checkpoint: Path) -> Any:
        """The model in float64."""
        return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64).eval()

    def prompt(self, row: dict[str, Any]) -> list[int]:
        """verl writes the prompt as text without its markers: "user\\n...\\nassistant\\n"."""
        content = row["input"].removeprefix("user\n").removesuffix("\nassistant\n")
        messages = [{"role": "user", "content": content}]
        ids = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        return list(ids)

    def logprobs(self, row: dict[str, Any]) -> torch.Tensor:
        """The model's logprob of every response token: float64 ``[length]``."""
        response = row["response_ids"]
        return self._distributions(row)[torch.arange(len(response)), torch.tensor(response)]

    def _distributions(self, row: dict[str, Any]) -> torch.Tensor:
        """The model's logprobs at every response position: float64 ``[length, vocabulary]``."""
        prompt, response = self.prompt(row), row["response_ids"]
        logits = self.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1)

    def gradients(
        self,
        mode: str,
        parameters: dict[str, torch.Tensor] | None = None,
        lambda_jun: float = 0.0,
    ) -> dict[str, torch.Tensor]:
        """The gradient at ``parameters`` (the checkpoint's by default), by name.

        lambda_jun: the weight of the mean of -log p over the junior's tokens.
        """
        if parameters is not None:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(parameters[name].double())
        self.model.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        trained = sum(sum(row["authorship"]) for row in self.rollouts)
        for place, row in enumerate(self.rollouts):
            losses = self._losses(row, self.advantages[place], self.old[place])
            if mode == "token-mean":
                loss = loss + sum(losses) / trained
            elif losses:
                loss = loss + sum(losses) / len(losses) / len(self.rollouts)
        if lambda_jun:
            imitated = [
                -log_prob
                for row in self.rollouts
                for log_prob, senior in zip(self.logprobs(row), row["authorship"], strict=True)
                if not senior
            ]
            loss = loss + lambda_jun * sum(imitated) / len(imitated)
        loss.backward()
        return {
            name: parameter.grad.clone()
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }

    def clipped_share(self) -> float:
        """The share of response tokens whose ratio, at the last parameters, is clipped."""
        with torch.no_grad():
            pairs = zip(self.rollouts, self.old, strict=True)
            ratios = torch.cat([(self.logprobs(row) - old).exp() for row, old in pairs])
        return float(((ratios - 1).abs() > CLIP).double().mean())

    def _losses(self, row: dict[str, Any], advantage: float, old: torch.Tensor) -> list[Any]:
        """The clipped loss of the senior's tokens, with the bonus and the penalty of each."""
        losses = []
        columns = self._distributions(row), row["response_ids"], old, row["authorship"]
        for logprobs, token, before, senior in zip(*columns, strict=True):
            if not senior:
                continue
            new = logprobs[token]
            ratio = (new - before).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = torch.maximum(-advantage * ratio, -advantage * clipped)
            if advantage < 0:
                loss = torch.minimum(loss, torch.tensor(-advantage * DUAL_CLIP).double())
            entropy = -(logprobs.exp() * logprobs).sum()
            penalty = (before - new).exp() - (before - new) - 1
            penalty = penalty.clamp(max=10)  # as verl does, against outliers
            losses.append(loss - self.entropy * entropy + self.kl * penalty)
        return losses


def _advantages(rollouts: list[dict[str, Any]]) -> list[float]:
    """Each reward against its prompt's: (r - mean) / (std + 1e-6)."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rollouts:
        groups[row["input"]].append(row["score"])
    values = []
    for row in rollouts:
        rewards = torch.tensor(groups[row["input"]], dtype=torch.float64)
        values.append(float((row["score"] - rewards.mean()) / (rewards.std() + 1e-6)))
    return values


def relative_error(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """The distance of two gradients over the length of the second, all parameters together."""
    assert ours.keys() == theirs.keys()
    distance = sum(float((ours[n].double() - theirs[n]).square().sum()) for n in theirs)
    length = sum(float(theirs[n].square().sum()) for n in theirs)
    return (distance / length) ** 0.5
