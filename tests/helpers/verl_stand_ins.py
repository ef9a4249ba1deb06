"""verl's configuration, as far as the adapter sees it, and a tokenizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

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
                "model": {"path": "some/model"},
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
