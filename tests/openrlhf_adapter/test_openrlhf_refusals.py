"""What an OpenRLHF run may not combine with tandem: each is refused by the name of its argument."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.refusals import (
    SOUND_ESTIMATORS,
    UNPROVEN,
    check_models,
    check_run,
    check_versions,
)
from tandem_plugin import TandemConfig
from tandem_plugin.training.command import flags_of_args
from tandem_plugin.training.refusals import Settings


def arguments(**changes: Any) -> Settings:
    """OpenRLHF's arguments, as far as they are looked at."""
    given = {
        "algo.advantage.estimator": "group_norm",
        "algo.advantage.gamma": 1,
        "algo.kl.target": None,
        "actor.policy_loss_type": "ppo",
        "vllm.num_engines": 1,
        "data.max_images_per_prompt": 0,
        "train.async_enable": False,
        "train.dynamic_batch_enable": False,
        "rollout.temperature": 1.0,
        "rollout.top_p": 1.0,
        "ds.attn_implementation": "sdpa",
        "ds.lora.rank": 0,
        "ds.packing_samples": False,
        "ds.ring_attn_size": 1,
        **changes,
    }
    root = SimpleNamespace()
    for name, value in given.items():
        *parents, last = name.split(".")
        node = root
        for parent in parents:
            if not hasattr(node, parent):
                setattr(node, parent, SimpleNamespace())
            node = getattr(node, parent)
        setattr(node, last, value)
    return flags_of_args(root)


@dataclass
class Curriculum:
    training_step: int = 0


def tandem(**settings: Any) -> Any:
    return TandemConfig.from_mapping({"schedule": "word", **settings})


WORD = tandem()
CURRICULUM: Any = SimpleNamespace(
    schedule="curriculum", unproven=(), make_schedule=Curriculum, juniors=()
)
POOL = tandem(junior=["a", "b", "c"])
NEWER = {"algo.advantage.estimator": "newer"}


@pytest.mark.parametrize(
    ("changes", "config"),
    [
        *(({"algo.advantage.estimator": one}, WORD) for one in SOUND_ESTIMATORS),
        ({}, CURRICULUM),
        ({"train.async_enable": True}, WORD),
        *(({"vllm.num_engines": number}, POOL) for number in (3, 8)),
        ({}, tandem(junior=["a"])),
        (NEWER, tandem(unproven=["estimator"])),
    ],
)
def test_sound_arguments_pass(changes: dict[str, Any], config: Any) -> None:
    check_run(arguments(**changes), config)


@pytest.mark.parametrize(
    ("changes", "config", "code"),
    [
        ({"algo.advantage.estimator": "gae"}, WORD, "TP442"),
        ({"algo.advantage.estimator": "gae"}, tandem(unproven=[*UNPROVEN]), "TP442"),
        (NEWER, WORD, "TP443"),
        ({"actor.policy_loss_type": "newer"}, tandem(unproven=["estimator"]), "TP443"),
        ({"algo.advantage.estimator": "reinforce", "algo.advantage.gamma": 0.9}, WORD, "TP604"),
        ({"algo.kl.target": 6.0}, WORD, "TP605"),
        ({"vllm.num_engines": None}, WORD, "TP606"),
        ({"vllm.num_engines": 2}, POOL, "TP441"),
        ({"data.max_images_per_prompt": 2}, WORD, "TP607"),
        ({"ds.lora.rank": 8}, WORD, "TP608"),
        ({"train.async_enable": True}, CURRICULUM, "TP609"),
        ({}, tandem(unproven=["gae"]), "TP440"),
    ],
)
def test_what_does_not_go_with_tandem_is_refused_by_name(
    changes: dict[str, Any], config: Any, code: str
) -> None:
    with refused(code):
        check_run(arguments(**changes), config)


@pytest.mark.parametrize(
    ("changes", "code", "enough"),
    [
        ({"ds.attn_implementation": "flash_attention_2"}, "TP610", ["flash-attn", "kernels"]),
        ({"ds.packing_samples": True}, "TP611", ["flash-attn"]),
        ({"ds.ring_attn_size": 2}, "TP611", ["flash-attn"]),
        ({"train.dynamic_batch_enable": True}, "TP611", ["flash-attn"]),
    ],
)
def test_what_needs_flash_attn_is_refused_where_it_is_not_installed(
    changes: dict[str, Any], code: str, enough: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention itself may be of the kernels package, which transformers takes in its place."""
    installed: dict[str, str] = {}
    monkeypatch.setattr("tandem_openrlhf.refusals.installed_version", installed.get)
    with refused(code):
        check_run(arguments(**changes), WORD)
    for package in enough:
        installed.clear()
        installed[package] = "2.8.3"
        check_run(arguments(**changes), WORD)


def test_multimodal_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vision_config": {"depth": 2}}')
    changes = {"actor.model_name_or_path": str(tmp_path)}
    with refused("TP451", setting="--actor.model_name_or_path", model=str(tmp_path)):
        check_models(arguments(**changes), WORD)


@pytest.mark.parametrize("version", ["0.10.4", "0.12.0", "0.110.0"])
def test_other_series_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"openrlhf": version, "vllm": "0.29.0"}
    monkeypatch.setattr("tandem_openrlhf.refusals.installed_version", installed.get)
    with refused("TP452"):
        check_versions(WORD)
    (warning,) = check_versions(tandem(unproven=["version"]))
    assert f"openrlhf {version} is not a version" in warning
    installed["openrlhf"] = "0.11.2"
    assert check_versions(WORD) == []
