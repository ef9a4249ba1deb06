"""Where an OpenRLHF run's tandem settings come from, and how the command turns tandem on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tandem_openrlhf import train_ppo_ray
from tandem_openrlhf.ray_hook import HOOK, HOOK_VARIABLE, amend
from tandem_openrlhf.settings import VARIABLE, split_arguments, tandem_config
from tandem_plugin import ConfigError, TandemConfig


def test_flags_are_taken_out_and_everything_else_stays_in_order() -> None:
    settings, others = split_arguments(
        ["--tandem.schedule", "word", "--train.seed", "3", "--tandem.p=0.3", "--flag", "-x"]
    )
    assert settings == {"schedule": "word", "p": 0.3}
    assert others == ["--train.seed", "3", "--flag", "-x"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tandem.p"], "--tandem.p has no value"),
        (["--tandem.p", "--train.seed", "3"], "--tandem.p has no value"),
        (["--tandem.p", "0.3", "--tandem.p=0.4"], "--tandem.p is given twice"),
    ],
)
def test_flag_without_a_value_or_given_twice_is_refused(
    arguments: list[str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        split_arguments(arguments)


def test_values_may_be_numbers_words_null_and_negative() -> None:
    settings, _ = split_arguments(
        ["--tandem.junior", "null", "--tandem.cap=8", "--tandem.boundaries", "step"]
    )
    assert settings == {"junior": None, "cap": 8, "boundaries": "step"}


def test_values_of_any_size_are_text_that_the_settings_refuse() -> None:
    for value in ("[" * 100_000, "9" * 5_000):
        settings, _ = split_arguments([f"--tandem.p={value}"])
        with pytest.raises(ConfigError, match="is not a probability"):
            TandemConfig.from_mapping(settings)


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tandem.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="neither a JSON object nor a file that can be read"):
        tandem_config({VARIABLE: str(tmp_path / "tandem.json")})


def test_environment_holds_json_or_the_path_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tandem.json"
    file.write_text('{"schedule": "chunk"}')
    assert tandem_config({}) is None
    assert tandem_config({VARIABLE: " "}) is None
    for value, expected in (('{"p": 0.25}', "word"), (str(file), "chunk")):
        config = tandem_config({VARIABLE: value})
        assert config is not None
        assert config.schedule == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("/nowhere/tandem.json", "neither a JSON object nor a file"),
        ("{schedule: word}", "does not hold JSON"),
        ('{"schedule": "words"}', "schedule='words' does not exist"),
        ('{"p": 2}', "p=2"),
        (f'{{"p": {"[" * 100_000}', "does not hold JSON"),
        (f'{{"seed": {"9" * 5_000}}}', "does not hold JSON"),
        ("n" * 5_000, "neither a JSON object nor a file"),
        ("a\0b", "neither a JSON object nor a file"),
    ],
)
def test_wrong_environment_is_refused_with_a_sentence(value: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        tandem_config({VARIABLE: value})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if OpenRLHF were there, and nothing in the environment."""
    monkeypatch.setattr("tandem_openrlhf.refusals.version", lambda name: "0.11.2")
    monkeypatch.setenv(VARIABLE, "")  # so that both are put back after the test
    monkeypatch.setenv(HOOK_VARIABLE, HOOK)


@pytest.mark.usefixtures("installed")
def test_command_lays_flags_over_the_environment_and_sets_both_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, '{"schedule": "word", "p": 0.25}')
    monkeypatch.delenv(HOOK_VARIABLE)
    rest = train_ppo_ray.prepare(["--tandem.cap", "4", "--train.seed", "3"])
    assert rest == ["--train.seed", "3"]
    settings = json.loads(os.environ[VARIABLE])
    assert (settings["schedule"], settings["p"], settings["cap"]) == ("word", 0.25, 4)
    assert os.environ[HOOK_VARIABLE] == HOOK


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Nothing says how to train in tandem"),
        (["--tandem.p", "1.5"], "p=1.5"),
        (["--tandem.junior", "/nowhere"], "tandem.junior='/nowhere' does not exist"),
    ],
)
def test_command_refuses_before_anything_starts(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit, match=sentence):
        train_ppo_ray.main(arguments)


@pytest.mark.usefixtures("installed")
def test_command_does_not_replace_another_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOOK_VARIABLE, "another.hook")
    with pytest.raises(ConfigError, match=r"another\.hook is set"):
        train_ppo_ray.prepare(["--tandem.schedule", "word"])


def test_command_says_that_openrlhf_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem_openrlhf.refusals.version", _missing)
    with pytest.raises(ConfigError, match="OpenRLHF is not installed"):
        train_ppo_ray.prepare(["--tandem.schedule", "word"])


def _missing(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


def test_hook_leaves_a_run_without_tandem_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    untouched: dict[str, Any] = {"env_vars": {"A": "1"}}
    assert amend(untouched) is untouched
    assert amend(None) is None


@pytest.mark.usefixtures("installed")
def test_hook_sends_settings_and_itself_to_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"schedule": "word"}')
    monkeypatch.setattr("tandem_openrlhf.patches.PATCHES", ())
    given = {"env_vars": {"A": "1"}}
    amended = amend(given)
    assert amended is not None
    assert given == {"env_vars": {"A": "1"}}
    assert amended["worker_process_setup_hook"] == "tandem_openrlhf.ray_hook.activate"
    assert amended["env_vars"]["A"] == "1"
    assert json.loads(amended["env_vars"][VARIABLE])["schedule"] == "word"
    assert amend(amended) == amended
    with pytest.raises(ConfigError, match="worker_process_setup_hook of its own"):
        amend({"worker_process_setup_hook": "another.hook"})
