"""Keys that name tandem in a trainer's nested configuration, outside the flag."""

from __future__ import annotations

from typing import Any

import pytest

from tandem_verl.misplaced import Misplaced

FLAG = "generator.engine_kwargs.additional_config.tandem"


def found(additional: Any, **more: Any) -> list[str]:
    config = {"generator": {"engine_kwargs": {"additional_config": additional}}, **more}
    return list(Misplaced(FLAG, additional, "engine_kwargs", ["mine"]).below(config))


def test_flag_and_names_below_the_users_own_keys_are_left_alone() -> None:
    assert found({"tandem": {"p": 0.3, "tandem": 1}}, mine={"tandem": 1}, name="tandem") == []
    assert found({"tandem": None}, mine={"tandem": 1}) == []
    assert found({}, mine={"tandem": 1}) == ["mine.tandem"]


@pytest.mark.parametrize(
    ("additional", "key"),
    [({"p": 0.3}, "p"), ('{"tandm": {}}', "tandm"), ([{"tandem": {}}], "tandem")],
)
def test_setting_or_misspelt_name_beside_the_flag_is_found(additional: Any, key: str) -> None:
    (path,) = found(additional)
    assert path.endswith(key)


def test_names_anywhere_and_our_own_settings_below_engines_are_found() -> None:
    config = {"engine_kwargs": {"schedule": "word"}, "a": [{"tandem_p": 1}], "seed": 3}
    paths = Misplaced(FLAG, None, "engine_kwargs", []).below({"trainer": config})
    assert list(paths) == ["trainer.engine_kwargs.schedule", "trainer.a[0].tandem_p"]
