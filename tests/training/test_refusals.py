"""Tables of rejected settings, and what a run allows by name although it was not verified."""

from __future__ import annotations

from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.training.refusals import (
    Refusal,
    Unproven,
    broken,
    check_refusals,
    check_settings,
    check_versions,
    is_on,
    untested,
)

NAMES = {"custom": "one of your own", "megatron": "that engine", "version": "another series"}
TABLE = [
    broken("a", ("gae",), "it drops the reward", ("grpo",)),
    untested("a", (None, "grpo", "rloo"), "custom"),
    untested("--engine", (None, "fsdp"), "{value}"),
    Refusal("on", is_on, "verl-mask-as-length"),
]


def unproven(*allowed: str) -> Unproven:
    return Unproven(TandemConfig.from_mapping({"unproven": list(allowed)}), NAMES)


def checked(*allowed: str, **settings: Any) -> Unproven:
    run = unproven(*allowed)
    check_refusals(TABLE, settings.get, run)
    return run


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"a": "grpo", "--engine": "fsdp", "on": 0},
    ],
)
def test_sound_settings_pass(settings: dict[str, Any]) -> None:
    assert checked(**settings).warnings == []


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        (
            {"a": "gae"},
            "trainer-setting-incorrect",
            {"setting": "a=gae", "value": "gae", "why": "it drops the reward"},
        ),
        (
            {"a": "mine"},
            "trainer-setting-untested",
            {"key": "a", "setting": "a=mine", "sound": "grpo, rloo"},
        ),
        ({"--engine": "nobodys"}, "trainer-setting-untested", {"setting": "--engine nobodys"}),
        ({"on": 1}, "verl-mask-as-length", {"key": "on"}),
    ],
)
def test_first_setting_that_is_rejected_is_named(
    settings: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    with refused(code, **fields):
        checked(**settings)


@pytest.mark.parametrize(
    ("name", "settings"), [("custom", {"a": "mine"}), ("megatron", {"--engine": "megatron"})]
)
def test_unproven_setting_goes_on_under_its_name_alone_and_is_said_loudly(
    name: str, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with refused("trainer-setting-untested") as caught:
        checked(*(NAMES.keys() - {name}), **settings)
    assert f"add {name} to tandem.unproven" in caught.value.message
    checked(*NAMES, **settings).log_warnings()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING: ")
    assert f"tandem.unproven allows {name}" in line


def test_what_is_known_to_be_wrong_has_no_name_and_other_names_are_rejected() -> None:
    with refused("trainer-setting-incorrect", value="gae"):
        checked(*NAMES, a="gae")
    with refused("unproven-name-unknown", name="megatrn"):
        checked("megatrn")


def test_training_step_is_the_trainers_and_no_setting() -> None:
    handover = {"schedule": "handover", "after": 8, "steps": 4}
    check_settings(TandemConfig.from_mapping(handover))
    with refused("training-step-set", value=3):
        check_settings(TandemConfig.from_mapping({**handover, "training_step": 3}))


@pytest.mark.parametrize(
    ("verl", "allowed", "name", "code", "said"),
    [
        ("0.9.1", (), "version", None, []),
        ("0.9.0", (), "version", None, ["warning: verl 0.9.0"]),
        ("0.12.0", (), "version", "trainer-version-untested", []),
        ("0.12.0", ("version",), "version", None, ["WARNING: verl 0.12.0"]),
        (
            "0.12.0",
            ("version",),
            "",
            "framework-version-untested",
            [],
        ),  # there is no name that would allow it
        (None, (), "version", "trainer-not-installed", []),
    ],
)
def test_another_series_starts_only_where_its_name_is_allowed(
    verl: str | None,
    allowed: tuple[str, ...],
    name: str,
    code: str | None,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {"verl": verl, "vllm": "0.33.0"}
    monkeypatch.setattr("tandem_plugin.training.refusals.running_version", found.get)
    run = unproven(*allowed)
    if code is not None:
        with refused(code):
            check_versions("verl", run, name)
        return
    check_versions("verl", run, name)
    run.log_warnings()
    lines = [line.split(" is not ")[0] for line in capsys.readouterr().err.splitlines()]
    assert sorted(lines) == sorted([*said, "warning: vllm 0.33.0"])
