"""A page that is written while its run goes on shows what one written afterwards shows."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pages import content_of
from refused import refused

from tandem_plugin.lab.rollouts.rollout import text_digest
from tandem_plugin.lab.viewer.live import RolloutsPage, run_names
from tandem_plugin.training.validation_log import ValidationLog

Row = dict[str, Any]


def row(asked: int, **fields: Any) -> Row:
    return {
        "response_ids": [0, 2, 1, 7],
        "authorship": [1, 1, 0, 0],
        "tandem_seed": 7,
        "tandem_fingerprint": "x",
        "prompt": f"problem {asked}",
        "response": "a ab.",
    } | fields


def append(file: Path, *rows: Row, torn: str = "") -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as stream:
        stream.write("".join(json.dumps(one) + "\n" for one in rows) + torn)


def shown(page: Path) -> dict[str, Any]:
    """What a page shows, wherever its texts are packed."""
    data = content_of(page)
    for one in data["responses"]:
        del one["part"], one["place"]
    return data


def written(page: RolloutsPage) -> dict[str, Any]:
    """What a page that is written now, by another command, shows."""
    other = page.page.with_name("other.html")
    RolloutsPage(page.rollouts, other, str(page.page.with_name("vocab.json")), 10**7).write()
    return shown(other)


@pytest.fixture
def page(tmp_path: Path, tokenizer_file: Path) -> RolloutsPage:
    """The page of a folder that does not exist yet."""
    return RolloutsPage(
        tmp_path / "rollouts", tmp_path / "rollouts.html", str(tokenizer_file), 10**7
    )


def test_page_of_no_rollouts_yet_takes_in_each_step(page: RolloutsPage):
    assert page.update() is not None
    data = shown(page.page)
    assert (data["responses"], data["whole"]["responses"]) == ([], 0)
    assert data["live"]["every"] > 0
    assert page.update() is None
    for step in range(1, 12):
        append(page.rollouts / f"{step}.jsonl", *(row(p, step=step) for p in (1, step)))
        result = page.update()
        assert result is not None
        assert (result["responses"], result["steps"]) == (2 * step, step)
        assert page.update() is None
    live = shown(page.page)
    assert page.finish()["responses"] == 22
    done = shown(page.page)
    assert live.pop("live")["written"] >= data["live"]["written"]
    assert done.pop("live") is None
    assert live == done
    assert written(page) == {**done, "live": None}


def test_page_takes_in_the_validations_of_its_run(page: RolloutsPage):
    log = ValidationLog("a run", page.rollouts)
    log.add("senior", 0.75, 400, 0)
    assert page.update() is not None, "before the first response"
    assert [v["accuracy"] for v in shown(page.page)["validations"][0]] == [0.75]
    append(page.rollouts / "1.jsonl", row(1, step=1))
    assert page.update() is not None
    assert page.update() is None
    log.add("team", 0.5, 400, 5)
    log.add("senior", 0.25, 400, 5)
    assert page.update() is not None
    (validations,) = shown(page.page)["validations"]
    assert [(v["step"], v["answerer"]) for v in validations] == [
        (0, "senior"), (5, "team"), (5, "senior"),
    ]  # fmt: skip
    assert validations[-1]["warning"].startswith("the senior alone solves 25.0%")
    page.finish()
    assert shown(page.page)["validations"] == [validations]


def test_page_of_two_runs_takes_in_each_step_of_both(tmp_path: Path, tokenizer_file: Path):
    runs = [tmp_path / name / "rollouts" for name in ("b", "a")]
    place = (runs[0], tmp_path / "both.html", str(tokenizer_file), 10**7)
    page = RolloutsPage(*place, further=runs[1:])
    for step in range(1, 4):
        for run in runs if step > 1 else runs[1:]:
            run.parent.mkdir(exist_ok=True)
            append(run / f"{step}.jsonl", row(1, step=step), row(1, step=step))
            assert page.update() is not None
    live = shown(page.page)
    assert live["runs"] == ["b", "a"]
    place = (runs[0], tmp_path / "again.html", str(tokenizer_file), 10**7)
    RolloutsPage(*place, further=runs[1:]).write()
    once = shown(tmp_path / "again.html")

    def places(data: dict[str, Any]) -> list[Any]:
        return [
            (one["run"], data["files"][one["file"]], one["line"], one["sample"], one["step"])
            for one in data["responses"]
        ]

    assert places(live) == places(once)
    assert places(once)[:3] == [
        (0, "2.jsonl", 1, 0, 2),
        (0, "2.jsonl", 2, 1, 2),
        (0, "3.jsonl", 1, 0, 3),
    ]
    assert live["whole"] == once["whole"] == {"responses": 10, "problems": 1, "steps": 3}


NAMES = [
    (["runs/grpo/rollouts", "runs/tandem/rollouts"], ["grpo", "tandem"]),
    (["runs/grpo", "runs/grpo/rollouts"], ["grpo", "rollouts"]),
    (
        ["runs/a/1.jsonl", "runs/a/2.jsonl", "runs/b/1.jsonl"],
        ["a/1.jsonl", "a/2.jsonl", "b/1.jsonl"],
    ),
    (["runs/a/b/rollouts"], ["b/rollouts"]),
]


@pytest.mark.parametrize(("runs", "names"), NAMES)
def test_runs_are_named_by_what_their_places_differ_in(runs: list[str], names: list[str]):
    assert run_names([Path(run) for run in runs]) == names


def test_run_is_not_compared_with_itself(page: RolloutsPage, monkeypatch: Any):
    monkeypatch.chdir(page.rollouts.parent)
    with refused("view-run-twice"):
        RolloutsPage(page.rollouts, page.page, None, 10**7, further=[Path("rollouts")])


def test_line_that_is_still_written_is_left_for_later(page: RolloutsPage):
    file = page.rollouts / "1.jsonl"
    line = json.dumps(row(3)) + "\n"
    append(file, torn=line[:20])
    assert page.update()["responses"] == 0  # type: ignore[index]
    append(file, torn=line[20:] + line[:30])
    assert page.update()["responses"] == 1  # type: ignore[index]
    append(file, torn=line[30:])
    result = page.update()
    assert result is not None
    assert (result["responses"], result["unread_lines"]) == (2, 0)
    assert [one["line"] for one in shown(page.page)["responses"]] == [1, 2]


def test_file_that_was_written_anew_is_read_anew(page: RolloutsPage):
    file = page.rollouts / "1.jsonl"
    append(file, row(1), row(2))
    page.update()
    for rows in ([row(3)], [row(4)], [row(5), row(6)]):
        fresh = file.with_suffix(".new")
        append(fresh, *rows)
        os.replace(fresh, file)
        page.update()
        problems = [one[1] for one in shown(page.page)["problems"].values()]
        assert problems == [one["prompt"] for one in rows]


def test_grades_that_come_later_join_their_responses(page: RolloutsPage):
    rows = [row(i, problem=i, sample=0) for i in range(2)]
    append(page.rollouts / "a.jsonl", *rows)
    page.update()
    for problem in range(2):
        grade = {"outcome": "correct", "reward": 1.0, "answer": "4"}
        place = {"problem": problem, "sample": 0, "response_sha256": text_digest("a ab.")}
        append(page.rollouts / "a.grades.jsonl", {**place, **grade})
        assert page.update() is not None
        rewards = [one["reward"] for one in shown(page.page)["responses"]]
        assert rewards == [1.0] * (problem + 1) + [None] * (1 - problem)


def test_full_page_keeps_random_problems_of_all_steps(page: RolloutsPage):
    small = RolloutsPage(page.rollouts, page.page, str(page.page.with_name("vocab.json")), 60_000)
    letters = random.Random(0)
    for step in range(6):
        rows = [
            row(10 * step + i, response_ids=letters.choices(range(8), k=4000), response=None)
            | {"authorship": letters.choices((0, 1), k=4000)}
            for i in range(10)
        ]
        append(page.rollouts / f"{step}.jsonl", *rows)
        result = small.update()
    assert result is not None
    assert 0 < result["without_room"] == 60 - result["responses"]
    data = shown(page.page)
    assert data["withoutRoom"] == result["without_room"]
    small.finish()
    once = RolloutsPage(page.rollouts, page.page, str(page.page.with_name("vocab.json")), 60_000)
    once.write()
    assert {**data, "live": None} == shown(page.page)
    assert len({one["step"] for one in data["responses"]}) > 3


def test_wrong_tokenizer_is_told_before_there_are_rollouts(tmp_path: Path):
    page = RolloutsPage(tmp_path / "none", tmp_path / "page.html", str(tmp_path / "gone"), 10**7)
    with refused("tokenizer-not-found"):
        page.read_tokenizer()
    assert page.update() is not None, "it may come with the rollouts"


def test_page_is_never_one_of_the_rollouts(page: RolloutsPage):
    wrong = RolloutsPage(
        page.rollouts, page.rollouts / "1.jsonl", str(page.page.with_name("vocab.json")), 10**7
    )
    append(page.rollouts / "1.jsonl", row(1))
    before = (page.rollouts / "1.jsonl").read_bytes()
    with refused("output-overwrites-input"):
        wrong.update()
    assert (page.rollouts / "1.jsonl").read_bytes() == before


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_followed_page_stays_as_it_is_once_the_command_ends(
    page: RolloutsPage, end: signal.Signals
):
    command = [sys.executable, "-m", "tandem_plugin", "view", str(page.rollouts), "--follow"]
    command += ["--tokenizer", str(page.page.with_name("vocab.json")), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == f"Open {page.page.as_uri()} in a browser.\n"
    assert shown(page.page)["live"] is not None
    append(page.rollouts / "1.jsonl", row(1), row(2))
    deadline = time.monotonic() + 60
    while not shown(page.page)["responses"] and time.monotonic() < deadline:
        time.sleep(0.1)
    append(page.rollouts / "2.jsonl", row(1), row(2))
    process.send_signal(end)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, json.loads(stdout)["responses"]) == (0, 4), stderr
    data = shown(page.page)
    assert (data["live"], len(data["responses"])) == (None, 4)


def test_folder_that_cannot_come_is_an_error(tmp_path: Path, tokenizer_file: Path):
    place = str(tmp_path / "no" / "rollouts")
    command = [sys.executable, "-m", "tandem_plugin", "view", place, "--follow", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"].endswith("[path-missing]")
