"""Tables of rejected settings, and what a run allows by name although it was not verified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin.errors import EngineError
from tandem_plugin.unsupported import (
    Unproven,
    Unsupported,
    check_supported,
    is_on,
    is_set,
    option_of,
)

NAMES = {"custom": "one of your own", "megatron": "that engine", "version": "another series"}
TABLE = [
    Unsupported.broken("a", ("gae",), "it drops the reward", ("grpo",)),
    Unsupported.untested("a", (None, "grpo", "rloo"), "custom"),
    Unsupported.untested("--engine", (None, "fsdp"), "{value}"),
    Unsupported("on", is_on, "verl-mask-as-length"),
]


def unproven(*allowed: str) -> Unproven:
    return Unproven(allowed, NAMES)


def checked(*allowed: str, **settings: Any) -> Unproven:
    run = unproven(*allowed)
    check_supported(TABLE, settings.get, run)
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
    assert len(checked(*NAMES, **settings).warnings) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING: ")
    assert f"tandem.unproven allows {name}" in line


def test_what_is_known_to_be_wrong_has_no_name_and_other_names_are_rejected() -> None:
    with refused("trainer-setting-incorrect", value="gae"):
        checked(*NAMES, a="gae")
    with refused("unproven-name-unknown", name="megatrn"):
        checked("megatrn")


def test_option_that_is_set_is_rejected_with_the_fields_of_its_view() -> None:
    row = Unsupported(
        "cache.kind",
        is_set,
        "hybrid-junior-attention-senior",
        fields={"junior": lambda option: option("junior.name"), "senior": "a senior"},
        kind=EngineError,
    )
    view = SimpleNamespace(cache=SimpleNamespace(kind=0), junior=SimpleNamespace(name="a junior"))
    with refused("hybrid-junior-attention-senior", junior="a junior", senior="a senior") as caught:
        check_supported([row], option_of(view))
    assert isinstance(caught.value, EngineError)
    check_supported([row], option_of(SimpleNamespace(junior=1)))  # nothing of the name
