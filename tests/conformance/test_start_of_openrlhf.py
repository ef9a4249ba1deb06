"""OpenRLHF's command, held to the start of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

import pytest
from held_to_the_start import HeldToTheStart

from tandem_openrlhf import train_ppo_ray
from tandem_plugin.training.command import VARIABLE


class TestOpenRLHF(HeldToTheStart):
    package = "openrlhf"
    rejected = ({"--data.max_images_per_prompt": 1}, "openrlhf-images-differ")
    pipeline = None
    sampled: ClassVar[Mapping[str, Any]] = {"--rollout.top_p": 0.5}

    @pytest.fixture(autouse=True)
    def _nothing_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached: list[list[str]] = []
        monkeypatch.setattr("tandem_openrlhf.patches.patches_of", lambda config: ())
        monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {})
        monkeypatch.setattr("runpy.run_module", lambda *_, **__: self.reached.append(sys.argv))
        monkeypatch.setattr(sys, "argv", sys.argv)
        ray = ModuleType("ray")
        ray.init = lambda **_: None  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setenv(VARIABLE, "")

    def enter(self, tandem: Mapping[str, Any], model: str, settings: Mapping[str, Any]) -> bool:
        import json

        arguments = [f"--tandem.{name}={json.dumps(value)}" for name, value in tandem.items()]
        sound = {"--algo.advantage.estimator": "group_norm", "--vllm.num_engines": 1}
        named = {**sound, "--actor.model_name_or_path": model, **settings}
        arguments += [f"{name}={value}" for name, value in named.items()]
        train_ppo_ray.main(arguments)
        return bool(self.reached)
