"""``recipe.yaml``: what is one, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin import __version__
from tandem_plugin.lab.recipes.settings import (
    Recipe,
    left_variables,
    read_recipe,
    written,
    yaml_of,
)


def read(tmp_path: Path, text: str | bytes, *assignments: str) -> tuple[Recipe, list[str]]:
    file = tmp_path / "recipe.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_recipe(file, assignments)


@pytest.mark.parametrize("trainer", ["verl", "openrlhf", "trl", "skyrl"])
def test_written_recipe_has_each_setting_with_its_default_and_a_comment(
    trainer: str, tmp_path: Path
) -> None:
    text = written(trainer)
    recipe, defaults = read(tmp_path, text)
    assert recipe == Recipe(trainer=trainer)
    assert defaults == []
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    settings = [line for line in lines if not line.startswith("#")]
    assert [line.partition(":")[0] for line in settings] == list(Recipe.model_fields)
    assert all("  # " in line for line in settings)


def test_settings_that_the_file_does_not_have_are_named(tmp_path: Path) -> None:
    recipe, defaults = read(tmp_path, "trainer: trl\nsteps: 20\n", "gpus=2")
    assert (recipe.trainer, recipe.steps, recipe.gpus) == ("trl", 20, 2)
    assert not {"trainer", "steps", "gpus"} & set(defaults)
    assert {"model", "learning_rate"} <= set(defaults)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("step", "steps"),
        ("STEP", "steps"),
        ("STEPS", "steps"),
        ("RESPONSE", "max_response"),
        ("RESPONSES", "max_response"),
        ("ARGUMENT", "arguments"),
        ("MODEL", "model"),
        ("learning-rate", "learning_rate"),
        ("Temperature", "temperature"),
    ],
)
def test_unknown_setting_is_an_error_with_the_nearest_name(
    name: str, meant: str, tmp_path: Path
) -> None:
    with refused("recipe-setting-unknown", name=name, meant=f" Did you mean {meant!r}?"):
        read(tmp_path, f"{name}: 20\n")
    with refused("recipe-setting-unknown", name=name):
        read(tmp_path, "steps: 2\n", f"{name}=20")


def test_unknown_setting_that_is_like_none_lists_all(tmp_path: Path) -> None:
    with refused("recipe-setting-unknown", name="zzz", meant="") as caught:
        read(tmp_path, "zzz: 1\n")
    assert "learning_rate" in str(caught.value)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
def test_line_ends_and_marks_of_other_systems_just_work(end: bytes, tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + end.join([b"trainer: trl", b"steps: 20", b""])
    assert read(tmp_path, text)[0].steps == 20


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("STEPS = 20", "steps"),
        ("steps=20", "steps"),
        ("RESPONSE=512", "max_response"),
        ("ARGUMENTS=(--learning_rate 1e-5)", "arguments"),
    ],
)
def test_line_of_a_shell_is_told_how_yaml_has_it(line: str, name: str, tmp_path: Path) -> None:
    value = line.partition("=")[2].strip()
    with refused("recipe-line-of-shell", line=2, name=name, value=value):
        read(tmp_path, f"trainer: trl\r\n{line}\r\n")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- trainer: verl\n- steps: 20\n", "recipe-not-mapping"),
        ("", "recipe-not-mapping"),
        ("# nothing\n", "recipe-not-mapping"),
        ("just words", "recipe-not-mapping"),
        ("steps: 20\nsteps: 30\n", "recipe-setting-twice"),
        ("tandem: {p: 0.5, p: 0.3}\n", "recipe-setting-twice"),
        ("steps: 20\n\tgpus: 1\n", "recipe-unreadable"),
        ("steps: [1\n", "recipe-unreadable"),
        ("steps: !!python/object/apply:os.system [true]\n", "recipe-unreadable"),
        ("1: 2\n", "recipe-setting-unknown"),
        ("[a]: 2\n", "recipe-unreadable"),
        (f"version: 9{__version__}\n", "recipe-version-differs"),
        ("version: 0.1\n", "recipe-setting-invalid"),
    ],
)
def test_what_is_no_recipe_is_said_in_a_sentence(text: str, code: str, tmp_path: Path) -> None:
    with refused(code):
        read(tmp_path, text)


def test_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with refused("recipe-missing"):
        read_recipe(tmp_path / "recipe.yaml")
    with refused("recipe-unreadable"):
        read(tmp_path, b"steps: \xff\n")
    with refused("recipe-unreadable"):
        read_recipe(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", "1e3"),
        ("steps", True),
        ("steps", 99999999999999999999),
        ("steps", 1.5),
        ("gpus", "two"),
        ("max_response", -1),
        ("heldout", -5),
        ("samples", 1),
        ("learning_rate", "fast"),
        ("learning_rate", float("nan")),
        ("learning_rate", True),
        ("temperature", 0),
        ("method", "ppo"),
        ("trainer", "verll"),
        ("device", "cuda"),
        ("protocol", "mine"),
        ("model", None),
        ("reward", []),
        ("benchmarks", ["gsm8k"]),
        ("arguments", [1]),
        ("tandem", "word"),
    ],
)
def test_wrong_value_is_named(name: str, value: Any) -> None:
    with refused("recipe-setting-invalid", name=name):
        Recipe(**{name: value})


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"tandem": {"scedule": "word"}}, "setting-unknown"),
        ({"tandem": {"p": 2}}, "parameter-out-of-range"),
        ({"method": "grpo", "tandem": {"scedule": "word"}}, "setting-unknown"),
        ({"tandem": {"junior": "a/b"}}, "recipe-tandem-elsewhere"),
        ({"tandem": {"rollouts": "r"}}, "recipe-tandem-elsewhere"),
        ({"train": "mine.parquet"}, "recipe-data-ambiguous"),
        ({"problems": None}, "recipe-data-ambiguous"),
        ({"validation": "mine.parquet"}, "recipe-validation-alone"),
        ({"reward": ["a.py:f", "b.py:g"], "reward_weights": [1]}, "recipe-reward-weights-differ"),
        ({"trainer": "trl", "reward_weights": [1, 2]}, "recipe-reward-weights-differ"),
        ({"prompts": 15}, "recipe-updates-uneven"),
        ({"micro_batch": 7}, "recipe-batch-uneven"),
        ({"gpus": 3}, "recipe-batch-uneven"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011, the code says which
        Recipe(**settings)
    found = getattr(caught.value, "code", "")
    assert found == code or (code == "parameter-out-of-range" and "p" in str(caught.value)), found


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path: Path) -> None:
    recipe, _ = read(tmp_path, "learning_rate: 1e-6\nkl: 2e-1\n", "temperature=1")
    assert (recipe.learning_rate, recipe.kl, recipe.temperature) == (1e-6, 0.2, 1.0)


def test_assignments_lead_into_mappings(tmp_path: Path) -> None:
    recipe, _ = read(
        tmp_path, "tandem: {schedule: word, p: 0.5}\n", "tandem.p=0.3", "benchmarks.X=x.jsonl"
    )
    assert recipe.tandem == {"schedule": "word", "p": 0.3}
    assert recipe.benchmarks == {"GSM8K": "gsm8k-test", "X": "x.jsonl"}


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        (["steps"], "option-not-assignment"),
        (["=5"], "option-not-assignment"),
        (["steps=1", "steps=2"], "recipe-set-twice"),
        (["model.x=1"], "recipe-setting-unknown"),
        (["steps=[1"], "recipe-unreadable"),
    ],
)
def test_wrong_assignment_is_named(assignments: list[str], code: str, tmp_path: Path) -> None:
    with refused(code):
        read(tmp_path, "steps: 5\n", *assignments)


def test_variables_of_earlier_recipes_are_named_with_their_settings() -> None:
    environ = {"STEPS": "20", "RESPONSE": "512", "PATH": "/bin", "MODEL": ""}
    assert left_variables(environ) == {"STEPS": "steps", "RESPONSE": "max_response"}
    with refused("recipe-tandem-variable"):
        left_variables({"TANDEM_CONFIG": '{"p": 0.9}'})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ((), "[]"),
        (("a", "b"), "[a, b]"),
        ({"p": 0.5}, "{p: 0.5}"),
        (1e-6, "1.0e-06"),
    ],
)
def test_values_are_written_as_yaml_reads_them(value: Any, text: str) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml_of(value) == text
    read_back = yaml.safe_load(text)
    assert read_back == (list(value) if isinstance(value, tuple) else value)
