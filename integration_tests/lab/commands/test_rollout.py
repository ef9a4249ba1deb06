"""``tandem rollout`` as a user runs it: stopped, killed and gone on with, its file is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import ENGINE, TANDEM, run, stopped

pytestmark = pytest.mark.long

PROBLEMS, SAMPLES, TOKENS = 30, 2, 150

Command = Callable[..., list[str]]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(PROBLEMS)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def command(checkpoints: dict[str, Path], problems: Path) -> Command:
    def made(out: Path, *more: str) -> list[str]:
        return [
            *(*TANDEM, "rollout", "--out", str(out)),
            *("--senior", str(checkpoints["senior"]), "--junior", str(checkpoints["other"])),
            *("--problems", str(problems), "--n", str(SAMPLES), "--set", "cap=4"),
            *("--max-tokens", str(TOKENS), "--seed", "5"),
            *ENGINE,
            *more,
        ]

    return made


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def rows(file: Path) -> dict[tuple[int, int], dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    by_place = {(row["problem"], row["sample"]): row for row in found}
    assert len(by_place) == len(found)
    return by_place


@pytest.fixture(scope="module")
def whole(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "rollouts.jsonl"
    done = run(command(out, "--json"))
    result = json.loads(done.stdout)
    assert (result["responses"], result["written"], result["found"]) == (60, 60, 0)
    return out


def test_every_line_is_a_rollout_that_replays(whole: Path):
    found = rows(whole)
    assert sorted(found) == [(i, j) for i in range(PROBLEMS) for j in range(SAMPLES)]
    row = found[3, 1]
    assert (row["prompt"], row["answer"]) == ("What is 3 + 3?", "6")
    assert "reward" not in row
    assert len(row["response_ids"]) == len(row["authorship"])
    assert len({row["tandem_seed"] for row in found.values()}) == 60
    assert len({tuple(row["response_ids"]) for row in found.values()}) == 60
    done = run([*TANDEM, "replay", str(whole), "--json"])
    result = json.loads(done.stdout)
    assert (result["rows"], result["differing_rows"]) == (60, 0)
    assert 0.3 < result["senior_share"] < 0.7


def test_killed_and_interrupted_run_ends_with_the_same_responses(
    command: Command, whole: Path, tmp_path: Path
):
    out = tmp_path / "rollouts.jsonl"
    stderr = tmp_path / "stderr"
    code = stopped(command(out), stderr, lambda: lines(out) >= 10, signal.SIGKILL)
    assert code == -signal.SIGKILL
    killed = out.read_bytes()
    assert 10 <= killed.count(b"\n") < 60
    with out.open("ab") as file:  # as if the kill had come in the middle of a line
        file.write(b'{"problem": 29, "sample": 1, "prompt": "What')
    more = killed.count(b"\n") + 2
    code = stopped(command(out), stderr, lambda: lines(out) >= more, signal.SIGINT)
    said = stderr.read_text(errors="replace")
    assert code == 130, said[-3000:]
    assert "Run the same command again to resume." in said
    interrupted = out.read_bytes()
    assert interrupted.startswith(killed[: killed.rfind(b"\n") + 1])
    assert more <= interrupted.count(b"\n") < 60
    run(command(out))
    assert out.read_bytes().startswith(interrupted[: interrupted.rfind(b"\n") + 1])
    assert rows(out) == rows(whole)


def test_finished_file_needs_no_engine_and_other_settings_are_refused(
    command: Command, whole: Path
):
    before = whole.read_bytes()
    environment = os.environ | {"VLLM_TARGET_DEVICE": "no engine must start"}
    done = subprocess.run(
        command(whole), capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "wrote 0 responses, 60 already present, 60 in total." in done.stdout
    refused = subprocess.run(
        command(whole, "--temperature", "0.5"), capture_output=True, text=True, timeout=100
    )
    assert refused.returncode == 1
    assert "[rollout-settings-changed]" in refused.stderr
    assert whole.read_bytes() == before


def test_graded_run_asks_for_a_box_and_goes_on_with_its_rewards(
    checkpoints: dict[str, Path], tmp_path: Path
):
    """Random models box nothing; what they are asked and how it is graded is the same."""
    problems, out = tmp_path / "problems.jsonl", tmp_path / "rollouts.jsonl"
    asked = [{"problem": f"{i} + 1?", "answer": str(i + 1)} for i in (1, 2)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in asked))
    command = [
        *(*TANDEM, "rollout", "--out", str(out), "--problems", str(problems), "--grade"),
        *("--senior", str(checkpoints["senior"]), "--junior", str(checkpoints["other"])),
        *("--max-tokens", "8", *ENGINE, "--json"),
    ]
    result = json.loads(run([*command, "--n", "1"]).stdout)
    assert (result["written"], result["reward"]) == (2, 0.0)
    row = rows(out)[1, 0]
    assert "put your final answer within" in row["prompt"][-1]["content"]
    assert (row["reward"], row["outcome"], row["pred"]) == (0.0, "no_answer", "")
    assert json.loads(run([*TANDEM, "replay", str(out), "--json"]).stdout)["ok"]
    again = json.loads(run([*command, "--n", "1"]).stdout)
    assert (again["written"], again["found"], again["reward"]) == (0, 2, 0.0)
