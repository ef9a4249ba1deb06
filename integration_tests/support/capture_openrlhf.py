"""Test hook: saves the masks that reach OpenRLHF's policy loss, and what the trainer replayed.

Under ``$TANDEM_TEST_CAPTURE``: ``loss-<n>.pt`` with each micro-batch's mask, advantages, old and
rollout log-probabilities, and the gradient of its loss by each token's log-probability;
``rows-<n>.json`` with the token ids, seeds and fingerprint of every admitted batch;
``imitation-<n>.pt`` with each micro-batch's tokens to imitate, their number in the optimizer step,
and the gradient of the weighted term by each token's log-probability, in a run that has one;
``advantages-<n>.pt`` with what OpenRLHF made each response's advantages of, in the order of the
prompts, and the log-probabilities before the update.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import

FOLDER = Path(os.environ.get("TANDEM_TEST_CAPTURE", "."))


def _next(kind: str, ending: str) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{kind}-{len(list(FOLDER.glob(f'{kind}-*')))}.{ending}"


def _capture_losses(module: ModuleType) -> None:
    import torch

    forward = module.PolicyLoss.forward

    def captured(self: Any, log_probs: Any, *rest: Any, **arguments: Any) -> Any:
        with torch.enable_grad():
            leaf = log_probs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(forward(self, leaf, *rest, **arguments)[0], leaf)
        content = {"gradient": gradient, "mask": arguments["action_mask"], "advantages": rest[1]}
        content["log_probs"] = rest[0]
        content["rollout_log_probs"] = arguments.get("rollout_log_probs")
        torch.save(content, _next("loss", "pt"))
        return forward(self, log_probs, *rest, **arguments)

    module.PolicyLoss.forward = captured


def _capture_imitation(module: ModuleType) -> None:
    import torch

    backward = module.Imitation.backward

    def captured(self: Any, original: Any, loss: Any, *rest: Any, **more: Any) -> Any:
        log_probs = self.log_probs
        with torch.enable_grad():
            self.log_probs = log_probs.detach().requires_grad_()
            term = backward(self, lambda loss: loss, torch.zeros(()))
            (gradient,) = torch.autograd.grad(term, self.log_probs)
        self.log_probs = log_probs
        content = {"mask": self.mask, "tokens": float(self.tokens), "gradient": gradient}
        torch.save({**content, "loss": float(self.loss)}, _next("imitation", "pt"))
        return backward(self, original, loss, *rest, **more)

    module.Imitation.backward = captured


def _capture_rows(module: ModuleType) -> None:
    admit = module.OpenRLHFRun.admit

    def admitted(self: Any, samples: Any) -> Any:
        metrics = admit(self, samples)
        rows = [
            {
                "tokens": sample.sequences[0].tolist(),
                "fingerprint": sample.tandem["fingerprint"],
                "segments": sample.tandem["segments"],
                "length": int(sample.response_length),
            }
            for sample in samples
        ]
        _next("rows", "json").write_text(json.dumps(rows))
        return metrics

    module.OpenRLHFRun.admit = admitted


def _capture_advantages(module: ModuleType) -> None:
    import torch

    compute = module.RemoteExperienceMaker.compute_advantages_and_returns

    def computed(self: Any, experiences: Any) -> Any:
        kls = [experience.kl.clone() for experience in experiences]
        done = compute(self, experiences)
        content = {
            place: {
                "mask": experience.action_mask[i].bool(),
                "kl": kl[i],
                "log_probs": experience.action_log_probs[i].clone(),
                "reward": experience.rewards[i],
                "advantages": experience.advantages[i].clone(),
            }
            for experience, kl in zip(done, kls, strict=True)
            for i, place in enumerate(experience.index)
        }
        torch.save([content[place] for place in sorted(content)], _next("advantages", "pt"))
        return done

    module.RemoteExperienceMaker.compute_advantages_and_returns = computed


after_import("openrlhf.models.loss", _capture_losses)
after_import("tandem_openrlhf.patches.loss", _capture_imitation)
after_import("openrlhf.trainer.ppo_utils.experience_maker", _capture_advantages)
after_import("tandem_openrlhf.batch", _capture_rows)
