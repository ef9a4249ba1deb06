"""Where the settings of a run come from whose trainer has no place for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.training.command import (
    VARIABLE,
    flags_of_args,
    flags_of_command,
    settings_of_command,
    split_arguments,
    tandem_config,
)


def test_flags_are_taken_out_and_everything_else_stays_in_order() -> None:
    settings, others = split_arguments(
        ["--tandem.schedule", "word", "--train.seed", "3", "--tandem.p=0.3", "--flag", "-x"]
    )
    assert settings == {"schedule": "word", "p": 0.3}
    assert others == ["--train.seed", "3", "--flag", "-x"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--tandem.p"], "TP427"),
        (["--tandem.p", "--train.seed", "3"], "TP427"),
        (["--tandem.p", "0.3", "--tandem.p=0.4"], "TP428"),
    ],
)
def test_flag_without_a_value_or_given_twice_is_refused(arguments: list[str], code: str) -> None:
    with refused(code):
        split_arguments(arguments)


@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ("--tandem_schedule", "schedule"),
        ("--tandem-junior-name", "junior_name"),
        ("--tandem", "schedule"),
        ("--tandem=word", "schedule"),
        ("--vllm.tandem.schedule", "schedule"),
        ("-tandem.schedule", "schedule"),
        ("--Tandem.cap=3", "cap"),
        ("--tandm.cap", "cap"),
    ],
)
def test_flag_in_another_spelling_is_refused_with_the_right_one(argument: str, right: str) -> None:
    with refused("TP429", name=right):
        split_arguments(["--tandem.p", "0.3", argument, "word"])


def test_values_that_speak_of_tandem_are_left_alone() -> None:
    others = ["--ckpt.output_dir", "runs/tandem", "--logger.wandb.run_name=--tandem", "tandem"]
    assert split_arguments(others) == ({}, others)


def test_values_may_be_numbers_words_null_and_negative() -> None:
    settings, _ = split_arguments(
        ["--tandem.junior", "null", "--tandem.cap=8", "--tandem.boundaries", "step"]
    )
    assert settings == {"junior": None, "cap": 8, "boundaries": "step"}


def test_values_of_any_size_are_text_that_the_settings_refuse() -> None:
    for value in ("[" * 100_000, "9" * 5_000):
        settings, _ = split_arguments([f"--tandem.p={value}"])
        with refused("TP145"):
            TandemConfig.from_mapping(settings)


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tandem.json").write_bytes(b"\xff\xfe")
    with refused("TP423"):
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
    ("value", "code"),
    [
        ("/nowhere/tandem.json", "TP423"),
        ("{schedule: word}", "TP424"),
        ('{"schedule": "words"}', "TP117"),
        ('{"p": 2}', "TP145"),
        (f'{{"p": {"[" * 100_000}', "TP424"),
        (f'{{"seed": {"9" * 5_000}}}', "TP424"),
        ("n" * 5_000, "TP423"),
        ("a\0b", "TP423"),
    ],
)
def test_wrong_environment_is_refused_with_a_sentence(value: str, code: str) -> None:
    with refused(code):
        tandem_config({VARIABLE: value})


def test_flags_of_a_command_are_laid_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"schedule": "word", "p": 0.25}')
    config, others = settings_of_command(["--tandem.cap", "4", "--seed", "3"], "the command")
    assert others == ["--seed", "3"]
    assert config.parameters == {"p": 0.25, "cap": 4}
    monkeypatch.setenv(VARIABLE, "")
    with refused("TP426", plain="the command"):
        settings_of_command(["--seed", "3"], "the command")


def test_trainers_own_flags_are_read_before_and_after_it_parses_them() -> None:
    flags = {"--a.kind": {"type": str, "default": "gae"}, "--a.on": {"action": "store_true"}}
    read = flags_of_command(["--other", "1", "--a.kind=rloo", "-h"], flags)
    assert [read(flag) for flag in ("--a.kind", "--a.on", "--help")] == ["rloo", False, True]
    parsed = flags_of_args(SimpleNamespace(a=SimpleNamespace(kind="rloo", on=False)))
    assert [parsed(flag) for flag in flags] == ["rloo", False]
