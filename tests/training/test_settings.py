"""Versions and models of a run, whichever trainer it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem_plugin import ConfigError, TandemConfig
from tandem_plugin.training.settings import check_text_models, check_versions
from tandem_plugin.training.unproven import Unproven

SENTENCE = "{message} Its insides may be others: {mend}."


def unproven(*allowed: str) -> Unproven:
    names = {"version": "another series"}
    return Unproven(TandemConfig.from_mapping({"unproven": list(allowed)}), names)


def test_other_releases_are_said_and_what_is_not_installed_is_passed_over() -> None:
    found = {"verl": "0.9.0", "openrlhf": None, "vllm": "0.29.0"}
    (warning,) = check_versions(found, unproven(), "version", SENTENCE)
    assert warning.startswith("verl 0.9.0 is not a version")


def test_another_series_starts_only_where_its_name_is_allowed() -> None:
    found = {"openrlhf": "0.12.0", "vllm": "0.33.0"}
    with pytest.raises(ConfigError, match=r"Its insides may be others: pip .* add version to"):
        check_versions(found, unproven(), "version", SENTENCE)
    run = unproven("version")
    (warning,) = check_versions(found, run, "version", SENTENCE)
    assert warning.startswith("vllm 0.33.0 is not a version")
    assert "openrlhf 0.12.0 is not a version" in run.warnings[0]
    with pytest.raises(ConfigError, match="does not start"):
        check_versions(found, run, "", SENTENCE)  # there is no name that would allow it


def test_model_that_sees_or_hears_is_refused_by_the_setting_that_names_it(tmp_path: Path) -> None:
    for name, config in (("text", "{}"), ("image", '{"vision_config": {"depth": 2}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    text, image = str(tmp_path / "text"), str(tmp_path / "image")
    check_text_models({"a.model": text, "tandem.junior": None})
    with pytest.raises(ConfigError, match=r"^tandem\.junior='.*' is multimodal .*vision_config"):
        check_text_models({"a.model": text, "tandem.junior": image})
