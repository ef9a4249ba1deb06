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
    """OpenRLHF's arguments, as far as they are looked at; dots in names are double underscores."""
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
        **{name.replace("__", "."): value for name, value in changes.items()},
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


WORD = TandemConfig.from_mapping({"schedule": "word"})


@pytest.mark.parametrize("estimator", SOUND_ESTIMATORS)
def test_sound_estimators_pass(estimator: str) -> None:
    check_run(arguments(algo__advantage__estimator=estimator), WORD)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"algo__advantage__estimator": "gae"}, "TP442"),
        ({"algo__advantage__estimator": "newer"}, "TP443"),
        (
            {"algo__advantage__estimator": "reinforce", "algo__advantage__gamma": 0.9},
            "TP604",
        ),
        ({"algo__kl__target": 6.0}, "TP605"),
        ({"actor__policy_loss_type": "newer"}, "TP443"),
        ({"vllm__num_engines": None}, "TP606"),
        ({"data__max_images_per_prompt": 2}, "TP607"),
        ({"ds__lora__rank": 8}, "TP608"),
    ],
)
def test_what_does_not_go_with_tandem_is_refused_by_name(
    changes: dict[str, Any], code: str
) -> None:
    with refused(code):
        check_run(arguments(**changes), WORD)


def test_schedule_of_the_training_step_is_refused_in_an_asynchronous_run() -> None:
    @dataclass
    class Curriculum:
        training_step: int = 0

    tandem: Any = SimpleNamespace(
        schedule="curriculum", unproven=(), make_schedule=Curriculum, juniors=()
    )
    check_run(arguments(), tandem)
    with refused("TP609"):
        check_run(arguments(train__async_enable=True), tandem)
    check_run(arguments(train__async_enable=True), WORD)


def test_run_with_fewer_engines_than_juniors_is_refused() -> None:
    pool = TandemConfig.from_mapping({"junior": ["a", "b", "c"]})
    check_run(arguments(vllm__num_engines=3), pool)
    check_run(arguments(vllm__num_engines=8), pool)
    with refused("TP441"):
        check_run(arguments(vllm__num_engines=2), pool)
    check_run(arguments(), TandemConfig.from_mapping({"junior": ["a"]}))


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        (
            {"ds__attn_implementation": "flash_attention_2"},
            "--ds.attn_implementation flash_attenti",
        ),
        ({"ds__packing_samples": True}, "--ds.packing_samples"),
        ({"ds__ring_attn_size": 2}, "--ds.ring_attn_size"),
        ({"train__dynamic_batch_enable": True}, "--train.dynamic_batch_enable"),
    ],
)
def test_what_needs_flash_attn_is_refused_where_it_is_not_installed(
    changes: dict[str, Any], flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: dict[str, str] = {}
    monkeypatch.setattr("tandem_openrlhf.refusals.installed_version", installed.get)
    with refused("TP610", "TP611"):
        check_run(arguments(**changes), WORD)
    installed["flash-attn"] = "2.8.3"
    check_run(arguments(**changes), WORD)


def test_attention_by_a_kernel_of_transformers_needs_no_flash_attn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tandem_openrlhf.refusals.installed_version", {"kernels": "0.10.0"}.get)
    check_run(arguments(ds__attn_implementation="flash_attention_2"), WORD)


def test_multimodal_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vision_config": {"depth": 2}}')
    with refused("TP451", setting="--actor.model_name_or_path", model=str(tmp_path)):
        check_models(arguments(actor__model_name_or_path=str(tmp_path)), WORD)


@pytest.mark.parametrize("version", ["0.10.4", "0.12.0", "0.110.0"])
def test_other_series_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"openrlhf": version, "vllm": "0.29.0"}
    monkeypatch.setattr("tandem_openrlhf.refusals.installed_version", installed.get)
    with refused("TP452"):
        check_versions(WORD)
    (warning,) = check_versions(allowing("version"))
    assert f"openrlhf {version} is not a version" in warning
    assert "NOBODY HAS SHOWN" in warning
    installed["openrlhf"] = "0.11.2"
    assert check_versions(WORD) == []


def allowing(*names: str) -> TandemConfig:
    return TandemConfig.from_mapping({"schedule": "word", "unproven": list(names)})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("estimator", {"algo__advantage__estimator": "newer"}),
        ("loss", {"actor__policy_loss_type": "newer"}),
    ],
)
def test_what_was_not_tested_can_be_allowed_by_name_and_is_said(
    name: str, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with refused("TP443") as caught:
        check_run(arguments(**changes), WORD)
    assert f"add {name} to tandem.unproven" in caught.value.message
    check_run(arguments(**changes), allowing(name)).say()
    assert "newer was not tested with tandem" in capsys.readouterr().err
    check_run(arguments(), allowing(name)).say()
    assert capsys.readouterr().err == ""


def test_what_is_known_to_be_wrong_cannot_be_allowed() -> None:
    with refused("TP442", value="gae"):
        check_run(arguments(algo__advantage__estimator="gae"), allowing(*UNPROVEN))
    with refused("TP440"):
        check_run(arguments(), allowing("gae"))
