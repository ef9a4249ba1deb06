"""What an OpenRLHF run may not combine with tandem, rejected by the name of its argument."""

from __future__ import annotations

from typing import Any

import pytest
from refused import refused
from started import started

from tandem_openrlhf.start import ARGUMENTS, SOUND_ESTIMATORS, OpenRLHFCommand
from tandem_plugin import TandemConfig


def arguments(**changes: Any) -> dict[str, Any]:
    """OpenRLHF's arguments, as far as they are looked at."""
    changes = {"algo.advantage.estimator": "group_norm", "vllm.num_engines": 1, **changes}
    defaults = {flag: options["default"] for flag, options in ARGUMENTS.items()}
    return defaults | {f"--{name}": value for name, value in changes.items()}


def tandem(**settings: Any) -> Any:
    return TandemConfig.from_mapping({"schedule": "word", **settings})


WORD = tandem()
CURRICULUM = tandem(schedule="handover", after=8, steps=4)
NEWER = {"algo.advantage.estimator": "newer"}


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        *(({"algo.advantage.estimator": one}, WORD) for one in SOUND_ESTIMATORS),
        ({}, CURRICULUM),
        ({"train.async_enable": True}, WORD),
        ({"data.max_images_per_prompt": 2}, tandem(images=True)),
        ({"train.dynamic_batch_enable": True}, WORD),
        (NEWER, tandem(unproven=["estimator"])),
    ],
)
def test_sound_arguments_pass(changes: dict[str, Any], config: Any) -> None:
    started(OpenRLHFCommand.of(arguments(**changes)), config)


@pytest.mark.parametrize(
    ("changes", "config", "code"),
    [
        ({"data.max_images_per_prompt": 1}, WORD, "openrlhf-images-differ"),
        ({}, tandem(images=True), "openrlhf-images-differ"),
        (NEWER, WORD, "trainer-setting-untested"),
        (
            {"actor.policy_loss_type": "newer"},
            tandem(unproven=["estimator"]),
            "trainer-setting-untested",
        ),
        (
            {"algo.advantage.estimator": "reinforce", "algo.advantage.gamma": 0.9},
            WORD,
            "openrlhf-discount-counts-junior",
        ),
        ({"vllm.num_engines": None}, WORD, "openrlhf-engine-not-vllm"),
        ({"ds.lora.rank": 8}, WORD, "openrlhf-adapter-sync"),
        ({"train.async_enable": True}, CURRICULUM, "openrlhf-async-training-step"),
        (
            {"train.dynamic_batch_enable": True},
            tandem(lambda_jun=0.1),
            "openrlhf-imitation-dynamic-batch",
        ),
        ({}, tandem(unproven=["gae"]), "unproven-name-unknown"),
    ],
)
def test_what_does_not_go_with_tandem_is_refused_by_name(
    changes: dict[str, Any], config: Any, code: str
) -> None:
    with refused(code):
        started(OpenRLHFCommand.of(arguments(**changes)), config)
