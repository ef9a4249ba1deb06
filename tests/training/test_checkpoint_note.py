"""Settings beside checkpoints: what a resumed run says, and what it refuses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary, __version__
from tandem_plugin.training import checkpoint_note
from tandem_plugin.training.checkpoint_note import (
    NOTE,
    CheckpointNote,
    check_start,
)
from tandem_plugin.training.run import TandemRun

VOCABULARY = Vocabulary(("a", "Ġb", "c"), "a test")


def config(**settings: Any) -> TandemConfig:
    return TandemConfig.from_mapping({"schedule": "word", **settings})


def note(start: str, **settings: Any) -> CheckpointNote:
    return TandemRun.start(TandemRules(config(**settings), VOCABULARY)).note(start)


@pytest.fixture
def base(tmp_path: Path) -> str:
    folder = tmp_path / "base"
    folder.mkdir()
    return str(folder)


@pytest.fixture
def checkpoint(tmp_path: Path, base: str) -> Path:
    """A checkpoint of a run that started from the base, with its export as verl places it."""
    folder = tmp_path / "global_step_5"
    (folder / "actor" / "huggingface").mkdir(parents=True)
    note(base, seed=3, drafts={1: 4, 8: 0}, mode="speculative").write(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.split("tandem is on", 1)[-1].partition("\n")[2]


def test_note_says_what_defines_a_run_and_is_read_back(checkpoint: Path, base: str) -> None:
    fields = json.loads((checkpoint / NOTE).read_text())
    assert (fields["start"], fields["version"]) == (base, __version__)
    assert fields["settings"]["drafts"] == {"1": 4, "8": 0}
    written = CheckpointNote.read(checkpoint)
    assert written == note(base, seed=3, drafts={1: 4, 8: 0}, mode="speculative")


def test_same_settings_resume_without_a_word(
    checkpoint: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = note(base, seed=3, drafts={1: 4, 8: 0}, mode="speculative")
    now.check_resumed(checkpoint)
    assert said(capsys) == ""


def test_resumed_run_names_every_setting_that_it_changes(
    checkpoint: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note(base, p=0.25, seed=4, schedule="token").check_resumed(checkpoint)
    line = said(capsys)
    for change in (
        'schedule="token" (was "word")', "p=0.25 (was null)", "seed=4 (was 3)",
        'mode="lockstep" (was "speculative")', "drafts=null (was {", "fingerprint=",
    ):  # fmt: skip
        assert change in line
    assert "validation=" not in line


def test_changed_default_of_a_schedule_shows_in_its_fingerprint(
    checkpoint: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where no setting differs: another version of a plugin, or another tokenizer."""
    before = CheckpointNote.read(checkpoint)
    assert before is not None
    replace(before, fingerprint="0" * 16).write(checkpoint)
    note(base, seed=3, drafts={1: 4, 8: 0}, mode="speculative").check_resumed(checkpoint)
    assert 'fingerprint="' in said(capsys)


def test_resuming_from_another_start_may_not_move_the_junior_there(
    checkpoint: Path, base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = tmp_path / "trained"
    trained.mkdir()
    with refused("checkpoint-tandem-dropped", junior=base, now=str(trained)):
        note(str(trained)).check_resumed(checkpoint)
    note(str(trained), junior=base).check_resumed(checkpoint)
    assert "senior's start=" in said(capsys)
    note(base, junior=str(trained)).check_resumed(checkpoint)  # a junior that somebody named
    assert 'junior="' in said(capsys)


FILES = {
    "weights": ("model.safetensors", b"other weights"),
    "tokenizer": ("tokenizer.json", b'{"other": 1}'),
    "chat template": ("chat_template.jinja", b"{{ other }}"),
    "configuration": ("config.json", b'{"tie_word_embeddings": true}'),
}


def model(folder: Path, mark: str = "") -> str:
    folder.mkdir()
    for name, _ in FILES.values():
        (folder / name).write_bytes(f"{name} {mark}".encode())
    return str(folder)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """A senior's start and a junior, with contents."""
    return model(tmp_path / "senior", "s"), model(tmp_path / "junior", "j")


@pytest.mark.parametrize("part", FILES)
def test_junior_that_was_replaced_in_its_place_stops_a_resumed_run(
    tmp_path: Path, pair: tuple[str, str], part: str
) -> None:
    start, junior = pair
    note(start, junior=junior).write(tmp_path)
    note(start, junior=junior).check_resumed(tmp_path)
    name, content = FILES[part]
    (Path(junior) / name).write_bytes(content)
    with refused("junior-replaced", junior=junior):
        note(start, junior=junior).check_resumed(tmp_path)


def test_junior_behind_a_link_that_leads_elsewhere_stops_a_resumed_run(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    start, junior = pair
    link = tmp_path / "latest"
    link.symlink_to(junior)
    note(start, junior=str(link)).write(tmp_path)
    link.unlink()
    link.symlink_to(model(tmp_path / "other", "o"))
    with refused("junior-replaced", junior=str(link)):
        note(start, junior=str(link)).check_resumed(tmp_path)


def test_start_that_was_replaced_is_named_and_stops_a_run_of_which_it_is_the_junior(
    tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The senior of a resumed run is in its checkpoint; its start is what the run began with."""
    start, junior = pair
    for folder, settings in (("named", {"junior": junior}), ("own", {})):
        (tmp_path / folder).mkdir()
        note(start, **settings).write(tmp_path / folder)
    (Path(start) / "model.safetensors").write_bytes(b"trained since")
    note(start, junior=junior).check_resumed(tmp_path / "named")
    assert "contents of the senior's start=" in said(capsys)
    with refused("junior-replaced", junior=start):
        note(start).check_resumed(tmp_path / "own")


def test_same_junior_elsewhere_resumes(
    tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Moved, copied, or named relative to another folder: its contents are what counts."""
    start, junior = pair
    note(start, junior=junior).write(tmp_path)
    moved = Path(junior).rename(tmp_path / "moved")
    note(start, junior=str(moved)).check_resumed(tmp_path)
    assert said(capsys).count(" (was ") == 1  # the place
    own = tmp_path / "own"
    own.mkdir()
    note(start).write(own)
    note(str(Path(start).rename(tmp_path / "elsewhere"))).check_resumed(own)
    assert "senior's start=" in said(capsys)


def test_relative_and_absolute_path_of_one_junior_are_no_change(
    tmp_path: Path,
    pair: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start, junior = pair
    note(start, junior=junior).write(tmp_path)
    monkeypatch.chdir(tmp_path)
    now = note(start, junior="./junior")
    capsys.readouterr()
    now.check_resumed(tmp_path)
    assert capsys.readouterr().out == ""


def test_note_has_the_models_with_which_its_run_began(pair: tuple[str, str]) -> None:
    """A junior that is replaced while a run goes on is not what its engines have."""
    start, junior = pair
    run = TandemRun.start(TandemRules(config(junior=junior), VOCABULARY))
    begun = run.note(start)
    (Path(junior) / "model.safetensors").write_bytes(b"other weights")
    assert run.note(start) == begun
    assert note(start, junior=junior).marks != begun.marks


def test_other_libraries_are_named(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {"vllm": "0.29.0", "torch": "2.11", "transformers": None}
    monkeypatch.setattr(checkpoint_note, "library_versions", lambda: dict(versions))
    note(base).write(tmp_path)
    versions |= {"vllm": "0.32.0", "transformers": "5.10"}
    note(base).check_resumed(tmp_path)
    line = said(capsys)
    assert 'vllm="0.32.0" (was "0.29.0")' in line
    assert "torch" not in line  # the same
    assert "transformers" not in line  # unknown before


@pytest.mark.parametrize("trainer", ["verl", "openrlhf", "trl", "skyrl"])
def test_another_version_of_the_trainer_is_named(
    tmp_path: Path,
    base: str,
    trainer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the one that runs; others may be installed beside it."""
    for name in ("verl", "openrlhf", "trl", "skyrl"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, trainer, SimpleNamespace(__version__="1.2"))
    note(base).write(tmp_path)
    note(base).check_resumed(tmp_path)
    assert "with changes" not in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, trainer, SimpleNamespace(__version__="1.3"))
    note(base).check_resumed(tmp_path)
    assert f'with changes: {trainer}="1.3" (was "1.2")\n' in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "{", "[]", '{"start": 1}', '{"a": 1, "a": 2}'])
def test_checkpoint_without_a_readable_note_is_resumed_with_a_word(
    tmp_path: Path, base: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / NOTE).write_text(content)
    note(base).check_resumed(tmp_path)
    assert f"has no {NOTE}" in said(capsys)


@pytest.mark.parametrize("export", ["", "actor/huggingface"])
def test_trained_senior_does_not_become_its_own_junior_unsaid(
    checkpoint: Path, base: str, tmp_path: Path, export: str
) -> None:
    model = str(checkpoint / export)
    with refused("senior-tandem-dropped", model=model, junior=base):
        check_start(model, config(seed=4))
    link = tmp_path / "senior"  # as the recipes leave one
    link.symlink_to(checkpoint / export)
    with refused("senior-tandem-dropped"):
        check_start(str(link), config(seed=4))
    for junior in (base, model):
        check_start(model, config(seed=4, junior=junior))
        with refused("seeds-reused-by-continuation", seed=3):
            check_start(model, config(seed=3, junior=junior))


@pytest.mark.parametrize("schedule", ["solo", "solo-word"])
def test_trained_senior_may_go_on_alone_without_a_word_about_its_junior(
    checkpoint: Path, schedule: str
) -> None:
    check_start(str(checkpoint), config(seed=4, schedule=schedule))
    with refused("seeds-reused-by-continuation", seed=3):
        check_start(str(checkpoint), config(seed=3, schedule=schedule))
    with refused("senior-tandem-dropped"):
        check_start(str(checkpoint), config(seed=4, schedule="junior"))


def test_model_that_no_tandem_run_trained_starts_with_any_settings(base: str) -> None:
    for model in (base, "Qwen/Qwen3-4B", "no such folder", ""):
        check_start(model, config())


def test_model_below_the_folder_of_a_run_is_none_that_it_trained(
    checkpoint: Path, base: str
) -> None:
    """As where a training writes into the folder that its base model lies in."""
    for below in ("model", "models/base"):
        model = checkpoint / below
        model.mkdir(parents=True)
        check_start(str(model), config(seed=3))
