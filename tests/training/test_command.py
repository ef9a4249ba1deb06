"""Where the settings of a run come from whose trainer has no place for them."""

from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.training.command import (
    VARIABLE,
    running_config,
    settings_of_command,
    split_arguments,
    tandem_config,
)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--tandem.schedule", "word", "--tandem.p=0.3"], {"schedule": "word", "p": 0.3}),
        (["--tandem.p", ".3", "--tandem.lambda_jun=1."], {"p": 0.3, "lambda_jun": 1.0}),
        (["--tandem.junior", "null", "--tandem.cap=8"], {"junior": None, "cap": 8}),
        ([], {}),  # values that speak of tandem are another flag's
    ],
)
def test_flags_are_taken_out_and_everything_else_stays_in_order(
    arguments: list[str], settings: dict[str, object]
) -> None:
    others = ["--train.seed", "3", "--ckpt.output_dir", "runs/tandem", "--name=--tandem", "-x"]
    assert split_arguments([*others[:2], *arguments, *others[2:]]) == (settings, others)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--tandem.p"], "tandem-flag-without-value"),
        (["--tandem.p", "--train.seed", "3"], "tandem-flag-without-value"),
        (["--tandem.p", "0.3", "--tandem.p=0.4"], "tandem-flag-twice"),
        ([f"--tandem.p={'[' * 100_000}"], "parameter-not-probability"),
    ],
)
def test_flag_without_a_value_given_twice_or_of_any_size_is_refused(
    arguments: list[str], code: str
) -> None:
    with refused(code):
        TandemConfig.from_mapping(split_arguments(arguments)[0])


@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ("--tandem-junior-name", "junior_name"),
        ("--tandem", "schedule"),
        ("--vllm.tandem.schedule", "schedule"),
        ("--Tandem.cap=3", "cap"),
    ],
)
def test_flag_in_another_spelling_is_refused_with_the_right_one(argument: str, right: str) -> None:
    with refused("tandem-flag-invalid", name=right):
        split_arguments(["--tandem.p", "0.3", argument, "word"])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("/nowhere/tandem.json", "tandem-variable-not-json"),
        ("{schedule: word}", "tandem-variable-not-json"),
        ('["word"]', "tandem-variable-not-json"),
        ('{"schedule": "words"}', "plugin-name-unknown"),
        (f'{{"seed": {"9" * 5_000}}}', "tandem-variable-not-json"),
    ],
)
def test_wrong_environment_is_refused(value: str, code: str) -> None:
    with refused(code):
        tandem_config({VARIABLE: value})


def test_process_without_the_variable_is_in_no_tandem_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tandem_config({}) is tandem_config({VARIABLE: " "}) is None
    monkeypatch.delenv(VARIABLE, raising=False)
    with refused("tandem-variable-removed"):
        running_config()


def test_flags_of_a_command_are_laid_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"schedule": "word", "p": 0.25}')
    config, others, _ = settings_of_command(["--tandem.cap", "4", "--seed", "3"], "the command")
    assert others == ["--seed", "3"]
    assert config.parameters == {"p": 0.25, "cap": 4}
    monkeypatch.setenv(VARIABLE, "")
    with refused("tandem-settings-missing", plain="the command"):
        settings_of_command(["--seed", "3"], "the command")
