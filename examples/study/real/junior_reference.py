"""KL-Reg towards the junior with verl, whose reference is the actor's start.

In an unequal pair these are two models. verl imports this module in each of its processes
(``VERL_USE_EXTERNAL_MODULES``); the class attribute ``ActorRolloutRefWorker.ref_worker_cls`` (verl
0.9) is where its reference is made, and the one here reads the checkpoint that ``STUDY_REFERENCE``
names. Goes when: verl's reference takes a path of its own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import

REFERENCE = "STUDY_REFERENCE"


def use_junior(module: ModuleType) -> None:
    """module: ``verl.workers.engine_workers``."""

    class JuniorReference(module.TrainingWorker):  # type: ignore[misc,name-defined]
        """verl's reference, of the junior's weights."""

        def __init__(self, config: Any) -> None:
            junior = replace(
                config.model_config,
                path=os.environ[REFERENCE],
                hf_config_path=None,
                tokenizer_path=None,
            )
            super().__init__(replace(config, model_config=junior))

    module.ActorRolloutRefWorker.ref_worker_cls = JuniorReference


if REFERENCE in os.environ:
    after_import("verl.workers.engine_workers", use_junior)
