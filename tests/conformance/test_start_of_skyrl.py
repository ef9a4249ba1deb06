"""SkyRL's command, held to the start of a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed")

from held_to_the_start import HeldToTheStart

from tandem_skyrl.__main__ import main

ENGINE = "generator.inference_engine.engine_init_kwargs"


class TestSkyRL(HeldToTheStart):
    package = "skyrl"
    rejected = (
        {"generator.vision_language_generator": "true"},
        "skyrl-images-unsupported",
    )
    imitation = "skyrl-imitation-unsupported"
    pipeline: ClassVar[Mapping[str, Any]] = {f"{ENGINE}.pipeline_parallel_size": 2}
    beside: ClassVar[Mapping[str, Any]] = {f"{ENGINE}.additional_config.tandem.p": 0.3}
    sampled: ClassVar[Mapping[str, Any]] = {"generator.sampling_params.top_p": 0.5}

    @pytest.fixture(autouse=True)
    def _nothing_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached: list[Any] = []
        self.patched = monkeypatch
        monkeypatch.setattr(
            "tandem_skyrl.experiment.run_experiment", lambda *run: self.reached.append(run)
        )

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        arguments = [f"--tandem.{name}={json.dumps(value)}" for name, value in tandem.items()]
        named = {"trainer.policy.model.path": model, **settings}
        arguments += [f"{name}={value}" for name, value in named.items()]
        self.patched.setattr(sys, "argv", ["main", *arguments])
        main()
        return bool(self.reached)
