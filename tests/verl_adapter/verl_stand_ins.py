"""Stand-ins for verl's classes and batches, as far as the adapter sees them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from tandem_plugin.training.authorship_wire import Facts, ranges_of
from tandem_plugin.training.run import TandemRun
from tandem_verl.trainer import started_run

TOKENIZER = SimpleNamespace(
    get_vocab=lambda: {("Ġ" if i % 3 == 0 else "") + chr(97 + i): i for i in range(24)},
    name_or_path="a test",
)


def configuration(tandem: dict[str, Any] | None, **trainer: Any) -> Any:
    engine = {} if tandem is None else {"additional_config": {"tandem": tandem}}
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": str(Path(__file__).parent)},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}},
                "rollout": {"name": "vllm", "engine_kwargs": {"vllm": engine}},
            },
            "algorithm": {"adv_estimator": "grpo"},
            "trainer": {"use_v1": True, "v1": {"trainer_mode": "sync"}, **trainer},
        }
    )


IN_TANDEM, PLAIN = configuration({"schedule": "word", "cap": 4}), configuration(None)
IMITATING = configuration({"schedule": "word", "cap": 4, "lambda_jun": 0.2})


def tandem_of(config: Any) -> TandemRun:
    return started_run(config, TOKENIZER)


TOKENS, MASKS = [[3, 6, 9], [12, 15]], [[1, 0, 1], [0, 1]]
"""Two responses of boundaries alone, and who wrote their tokens under these seeds."""


def seed_of(tokens: list[int], senior: list[int]) -> int:
    """A seed under which these tokens have these authors."""
    rule = tandem_of(IN_TANDEM).rules.default
    return next(seed for seed in range(1000) if rule.replay(tokens, seed).tolist() == senior)


SEEDS = [seed_of(tokens, mask) for tokens, mask in zip(TOKENS, MASKS, strict=True)]


def facts_of(row: int, fingerprint: str, senior: list[int] | None = None) -> dict[str, Any]:
    """What one of the responses says of its authorship, or of another one, as it travels."""
    authors = np.array(MASKS[row] if senior is None else senior, dtype=bool)
    return Facts(
        fingerprint=fingerprint,
        settings={"schedule": "word"},
        seed=SEEDS[row],
        length=len(authors),
        segments=((SEEDS[row], 0, len(TOKENS[row])),),
        senior=tuple(ranges_of(authors)),
        trained=((0, len(TOKENS[row])),),
    ).to_wire()


def nested(rows: list[list[int]]) -> Any:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


def prepared(config: Any) -> Any:
    """A configuration as the driver hands it to trainer V1."""
    copy = OmegaConf.create(OmegaConf.to_container(config))
    copy.trainer.v1.trainer_mode = f"tandem_{copy.trainer.v1.trainer_mode}"
    return copy
