"""Tables of refused settings, and what a run allows by name although nobody has shown it."""

from __future__ import annotations

from typing import Any

import pytest
from refused import refused

from tandem_plugin import ConfigError, TandemConfig
from tandem_plugin.training.refusals import (
    Refusal,
    Unproven,
    broken,
    check_refusals,
    each,
    given,
    is_on,
    too_many_juniors,
    untested,
)

NAMES = {"custom": "one of your own", "megatron": "that engine", "much": "more than most"}
TABLE = [
    broken("a", ("gae",), "it drops the reward", ("grpo",)),
    untested("a", (None, "grpo", "rloo"), "custom"),
    untested("--a.loss", (None, "ppo", "gspo"), reach=""),
    untested("engine", (None, "fsdp"), "{value}", reach=""),
    *each(("on", "pools"), is_on, "TP520"),
    Refusal("rollouts", given, "TP524"),
    Refusal(
        "c",
        lambda value, of: (value or 0) > of("most"),
        "TP443",
        "much",
        {"reach": "", "sound": lambda of: of("most")},
    ),
    too_many_juniors("juniors", lambda of: of("engines")),
]


def checked(*allowed: str, **settings: Any) -> Unproven:
    unproven = Unproven(TandemConfig.from_mapping({"unproven": list(allowed)}), NAMES)
    found = {"most": 2, "juniors": (), "engines": 2, **settings}
    check_refusals(TABLE, found.get, unproven)
    return unproven


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"a": "grpo", "--a.loss": "gspo", "engine": "fsdp", "c": 2},
        {"on": 0, "pools": False, "rollouts": None},
        {"juniors": ("one", "two")},
        {"juniors": ("one",), "engines": 0},
    ],
)
def test_sound_settings_pass(settings: dict[str, Any]) -> None:
    assert checked(**settings).warnings == []


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"a": "gae"}, "TP442", {"setting": "a=gae", "value": "gae", "why": "it drops the reward"}),
        ({"a": "mine"}, "TP443", {"key": "a", "setting": "a=mine", "sound": "grpo, rloo"}),
        ({"--a.loss": "new"}, "TP443", {"setting": "--a.loss new", "sound": "ppo, gspo"}),
        ({"engine": "nobodys"}, "TP443", {"setting": "engine=nobodys"}),
        ({"on": 1}, "TP520", {"key": "on"}),
        ({"pools": True}, "TP520", {"key": "pools"}),
        ({"rollouts": "", "c": 3}, "TP524", {"key": "rollouts", "value": ""}),
        ({"c": 2, "most": 1}, "TP443", {"key": "c", "value": 2, "sound": 1}),
        ({"juniors": ("one", "two", "three")}, "TP441", {"juniors": 3, "engines": 2}),
    ],
)
def test_first_setting_that_is_refused_is_named(
    settings: dict[str, Any], code: str, fields: dict[str, Any]
) -> None:
    with refused(code, **fields):
        checked(**settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("custom", {"a": "mine"}), ("megatron", {"engine": "megatron"}), ("much", {"c": 3})],
)
def test_unproven_setting_goes_on_under_its_name_alone_and_is_said_loudly(
    name: str, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with refused("TP443") as caught:
        checked(*(NAMES.keys() - {name}), **settings)
    assert f"add {name} to tandem.unproven" in caught.value.message
    run = checked(*NAMES, **settings)
    run.say()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("WARNING: ")
    assert f"tandem.unproven allows {name}" in line
    checked(*NAMES).say()
    assert capsys.readouterr().err == ""  # nothing of it is made use of


def test_what_is_known_to_be_wrong_has_no_name_and_other_names_are_refused() -> None:
    with refused("TP442", value="gae"):
        checked(*NAMES, a="gae")
    with refused("TP440", name="megatrn"):
        checked("megatrn")
    with pytest.raises(ValueError, match="not one of the names"):
        checked().check("gae", ConfigError("a mistake of the adapter's"))
