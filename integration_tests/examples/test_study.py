"""``make study`` and ``make study-gpu`` in their smallest size: trained, tabled and resumed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import run

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

STUDY = Path(__file__).parents[2] / "examples" / "study" / "run.py"


def start(out: Path, *more: str) -> str:
    command = [sys.executable, str(STUDY), "--quick", "--models", "2", "--out", str(out), *more]
    return run(command, 3000).stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "study"
    said = start(out)
    assert "2 models are too few to test anything with." in said
    assert "8 of 8: " in said
    return out


def test_rows_are_of_every_training_and_the_page_of_every_difference(study: Path):
    rows = [json.loads(line) for line in (study / "rows.jsonl").read_text().splitlines()]
    assert [row["model"] for row in rows] == [41] * 4 + [42] * 4
    assert [len(row["points"]) for row in rows] == [1, 2, 2, 2] * 2
    text = (study / "study.md").read_text()
    # three couples at four choices of checkpoints
    assert text.count("| equal ") + text.count("| best checkpoints ") == 12
    assert (study / "curves.svg").is_file()


def test_second_start_repeats_no_training(study: Path):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*.json")}
    start(study)
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.json")} == before


def test_study_that_was_cut_short_resumes(study: Path, tmp_path: Path):
    """A training without its note is done again, and comes out the same."""
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    (note,) = (copy / "trainings").glob("model-42-tandem.json")
    kept = json.loads(note.read_text())
    note.unlink()
    assert "1 models, numbers 41 to 41" in _page(copy)
    start(copy)
    again = json.loads(note.read_text())
    assert {**again, "seconds": 0} == {**kept, "seconds": 0}


def _page(out: Path) -> str:
    start(out, "--page")
    return (out / "study.md").read_text()


def test_folder_of_another_study_is_refused(study: Path):
    done = subprocess.run(
        [sys.executable, str(STUDY), "--out", str(study)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "holds a study with other settings" in done.stderr


def test_comparison_on_a_stack_of_models_goes_on_with_more_seeds(tmp_path: Path):
    out = tmp_path / "gpu"

    def go(seeds: int) -> str:
        command = [sys.executable, str(STUDY.with_name("gpu.py")), "--quick", "--out", str(out)]
        return run([*command, "--seeds", str(seeds)], 3000).stdout

    said = go(1)
    assert "The pilot chose a learning rate of" in said
    assert "seeds 1: step 2 of 2" in said
    first = {path: path.stat().st_mtime_ns for path in out.glob("trainings/*")}
    assert len(first) == 4
    said = go(2)
    assert "seeds 2: step 2 of 2" in said
    assert "seeds 1:" not in said
    assert "pilot: step" not in said
    assert {path: path.stat().st_mtime_ns for path in first} == first
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [(row["model"], row["method"]) for row in rows[::4]] == [
        (1, "as taught"),
        (2, "as taught"),
    ]
    assert "No claim is made." in (out / "study.md").read_text()
