"""``make study`` in its smallest size, to the end: trained, judged, and resumed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import run

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

VERDICTS = ("cannot tell", "too few starts")
STUDY = Path(__file__).parents[2] / "examples" / "study" / "run.py"


def start(out: Path) -> str:
    return run([sys.executable, str(STUDY), "--quick", "--out", str(out)], 3000).stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "study"
    start(out)
    return out


def test_page_holds_a_verdict_on_every_claim(study: Path):
    text = (study / "study.md").read_text()
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all((study / picture).is_file() for picture in pictures)
    claims = [
        line
        for line in text.splitlines()
        if line.startswith("| TRL is the better team (`step`) | TRL |") and " ± " in line
    ]
    # against GRPO, three coefficients of KL-Reg and half of the tokens, at three choices
    assert len(claims) == 3 * (1 + 3 + 1)
    assert all(line.split(" | ")[-1].strip(" |") in VERDICTS for line in claims)


def test_second_start_repeats_no_training(study: Path):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*.json")}
    start(study)
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.json")} == before


def test_study_that_was_cut_short_resumes(study: Path, tmp_path: Path):
    """A training without its note is done again, and comes out the same."""
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    notes = sorted((copy / "trainings").glob("start-1-TRL-*.json"))
    kept = {note: note.read_text() for note in notes}
    notes[0].unlink()
    start(copy)
    assert {note: note.read_text() for note in notes} == kept


def test_folder_of_another_study_is_refused(study: Path):
    done = subprocess.run(
        [sys.executable, str(STUDY), "--out", str(study)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "holds a study with other settings" in done.stderr
