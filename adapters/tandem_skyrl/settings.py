"""Tandem's settings among SkyRL's: there they reach the engines and the trainer's process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from skyrl.train.config import SkyRLTrainConfig

_PASSED_ON = "additional_config"
"""The argument of vLLM's engines that has a place for plugins."""


def put_settings(cfg: SkyRLTrainConfig, tandem: TandemConfig) -> None:
    """Let every engine that SkyRL starts be in tandem, and the experiment know the settings.

    Log-probabilities are of the distribution that tokens are sampled from, as in the policy's loss.
    """
    arguments = cfg.generator.inference_engine.engine_init_kwargs
    passed_on = arguments.get(_PASSED_ON) or {}
    plain = json.loads(json.dumps({**tandem.settings(), "require": True}))  # SkyRL knows no tuples
    arguments[_PASSED_ON] = {**passed_on, "tandem": plain}
    arguments.setdefault("logprobs_mode", "processed_logprobs")


def settings_of(cfg: SkyRLTrainConfig) -> TandemConfig:
    """The settings that :func:`put_settings` stored; :class:`EngineError` if there are none."""
    arguments = cfg.generator.inference_engine.engine_init_kwargs
    passed_on = arguments.get(_PASSED_ON) or {}
    if "tandem" not in passed_on:
        raise EngineError("skyrl-settings-lost")
    return TandemConfig.from_mapping(passed_on["tandem"])
