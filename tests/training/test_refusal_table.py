"""Rows that tables of refused settings share, whichever way a user gives a setting."""

from __future__ import annotations

from collections.abc import Sequence
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
    is_on,
    untested,
)


def checked(refusals: Sequence[Refusal], *allowed: str, **settings: Any) -> list[str]:
    tandem = TandemConfig.from_mapping({"unproven": list(allowed)})
    unproven = Unproven(tandem, {"custom": "one of your own", "megatron": "that engine"})
    check_refusals(refusals, settings.get, unproven)
    return unproven.warnings


def test_setting_is_named_as_a_user_gives_it() -> None:
    for key, setting in (("a.loss", "a.loss=new"), ("--a.loss", "--a.loss new")):
        with refused("TP443", sound="ppo, gspo", setting=setting):
            checked([untested(key, ("ppo", "gspo"))], **{key: "new"})
        assert checked([untested(key, ("ppo", "gspo"))], **{key: "gspo"}) == []


def test_setting_that_is_not_there_is_tested_only_where_it_says_so() -> None:
    assert checked([untested("a", (None, "ppo"))]) == []
    with refused("TP443", key="a", setting="a=None", sound="ppo"):
        checked([untested("a", ("ppo",))])


def test_untested_value_is_allowed_by_its_name_and_what_it_breaks_by_none() -> None:
    table = [
        broken("a", ("gae",), "it drops the reward", ("grpo",)),
        untested("a", ("grpo",), "custom"),
    ]
    (warning,) = checked(table, "custom", a="mine")
    assert warning.startswith("a=mine was not tested with tandem")
    with refused("TP442", key="a", value="gae", setting="a=gae", why="it drops the reward"):
        checked(table, "custom", a="gae")
    (warning,) = checked([untested("a", ("fsdp",), "{value}", reach="")], "megatron", a="megatron")
    assert warning.startswith("a=megatron was not tested with tandem. Use one of: fsdp.")


def test_each_of_several_settings_is_refused_by_its_own_name() -> None:
    table = each(("a", "b"), is_on, "{key} is on.")
    assert checked(table, a=0) == []
    for key in "ab":
        with pytest.raises(ConfigError, match=f"^{key} is on"):
            checked(table, **{key: 1})
