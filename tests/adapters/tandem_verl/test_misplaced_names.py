"""Keys that name tandem in verl's nested configuration, outside the flag."""

from __future__ import annotations

from typing import Any

import pytest

from tandem_verl.misplaced import Misplaced


def found(additional: Any, **more: Any) -> list[str]:
    """The misplaced keys of a configuration with this ``additional_config``."""
    engine = {"engine_kwargs": {"vllm": {"additional_config": additional}}}
    config = {"actor_rollout_ref": {"rollout": engine}, **more}
    return list(Misplaced(additional).below(config))


def test_flag_and_names_below_the_users_own_keys_are_left_alone() -> None:
    assert found({"tandem": {"p": 0.3, "tandem": 1}}, custom={"tandem": 1}, name="tandem") == []
    assert found({"tandem": None}, custom={"tandem": 1}) == []
    assert found({}, custom={"tandem": 1}) == ["custom.tandem"]


@pytest.mark.parametrize(
    ("additional", "key"),
    [({"p": 0.3}, "p"), ('{"tandm": {}}', "tandm"), ([{"tandem": {}}], "tandem")],
)
def test_setting_or_misspelt_name_beside_the_flag_is_found(additional: Any, key: str) -> None:
    (path,) = found(additional)
    assert path.endswith(key)


def test_names_anywhere_and_our_own_settings_below_engines_are_found() -> None:
    config = {"engine_kwargs": {"schedule": "word"}, "a": [{"tandem_p": 1}], "seed": 3}
    paths = Misplaced(None).below({"trainer": config})
    assert list(paths) == ["trainer.engine_kwargs.schedule", "trainer.a[0].tandem_p"]
