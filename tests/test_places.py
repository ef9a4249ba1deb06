"""What is said of paths and names that lead nowhere, and of files that the system refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.errors import ConfigError
from tandem_plugin.files import check_model, look_again, system_advice, system_reason


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("senior", "junior"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text("{}")
    (tmp_path / "problems.jsonl").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("problem.jsonl", "problems.jsonl"),
        ("models/senor", "models/senior"),
        ("model/senior", "models/senior"),
    ],
)
def test_a_mistyped_path_is_told_the_nearest_one_that_is_there(given: str, meant: str) -> None:
    assert look_again(given) == f"Did you mean {meant!r}?"


def test_a_path_that_is_near_nothing_is_told_where_it_was_looked_for(here: Path) -> None:
    assert look_again("elsewhere.jsonl") == f"Check the path, which is relative to {str(here)!r}."
    assert (
        look_again("models/none/senior") == f"Check the path, which is relative to {str(here)!r}."
    )
    assert look_again("/no/such/file") == "Check the path."


@pytest.mark.parametrize(
    "given", ["models/senior", "Qwen/Qwen3-0.6B", "gpt2", "s3://bucket/model", "problems.jsonl"]
)
def test_a_model_may_be_a_folder_a_file_an_address_or_a_name_on_the_hub(given: str) -> None:
    check_model(given, "senior")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("models/senor", "There is no senior at 'models/senor'. Did you mean 'models/senior'?"),
        ("models/none", "There is no senior at 'models/none'. Check the path"),
        ("/no/such/model", "There is no senior at '/no/such/model'. Check the path."),
        ("a/b/c", "There is no senior at 'a/b/c'. Check the path"),
        ("models", "The senior 'models' is a folder without config.json. Pass the folder"),
    ],
)
def test_what_cannot_be_a_model_is_refused_before_any_engine_starts(given: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_model(given, "senior")
    assert str(caught.value).startswith(said)
    assert "Pass the folder of a Hugging Face checkpoint" in str(caught.value)


def test_a_folder_around_one_checkpoint_says_which(here: Path) -> None:
    (here / "run" / "step-20").mkdir(parents=True)
    (here / "run" / "step-20" / "config.json").write_text("{}")
    with refused("TP761", model="run"):
        check_model("run", "junior")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "Change its permissions, or use another path."),
        (errno.EISDIR, "Use a file, not a folder."),
        (errno.ENOSPC, "Free disk space, or use a path on another disk."),
        (errno.EIO, "Use another file, or check its disk."),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(number: int, remedy: str) -> None:
    error = OSError(number, "No")
    assert (system_reason(error), system_advice(error)) == ("No", remedy)
