"""verl's driver, held to the start of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

pytest.importorskip("verl", reason="verl is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from held_to_the_start import HeldToTheStart
from omegaconf import OmegaConf
from verl_stand_ins import configuration

from tandem_verl.configuration import prepare
from tandem_verl.settings import OUR_MODE

ROLLOUT = "actor_rollout_ref.rollout"


class TestVerl(HeldToTheStart):
    package = "verl"
    rejected = ({f"{ROLLOUT}.name": "sglang"}, "verl-engine-not-vllm")
    pipeline: ClassVar[Mapping[str, Any]] = {f"{ROLLOUT}.pipeline_model_parallel_size": 2}
    sampled: ClassVar[Mapping[str, Any]] = {f"{ROLLOUT}.top_p": 0.5}

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        config = OmegaConf.create(OmegaConf.to_container(configuration(dict(tandem))))
        OmegaConf.update(config, "actor_rollout_ref.model.path", model, force_add=True)
        for name, value in settings.items():
            OmegaConf.update(config, name, value, force_add=True)
        prepare(config)
        mode: str = config.trainer.v1.trainer_mode
        return mode.startswith(OUR_MODE)
