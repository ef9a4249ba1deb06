from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_results import edit, found_tables, run, texts, write_handoff, write_run

PAGE = Path(__file__).with_name("example_by_hand.md")
ERROR = re.compile(r" ± ([\d.]+)")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of the page's example, made by the page's own code."""
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, PAGE, "exec"), {})
    return tmp_path / "results"


def tables(text: str) -> list[str]:
    """The lines of the tables below third-level headings, headings included."""
    sections = re.split(r"^(?=### )", text, flags=re.MULTILINE)[1:]
    return [line for part in sections for line in part.splitlines() if line[:1] in ("#", "|")]


def test_command_gives_the_tables_computed_by_hand(example: Path):
    done = run(example / "GRPO", example / "TRL", "--out", example / "tables")
    assert done.exit_code == 0, done.output
    given = tables((example / "tables" / "tables.md").read_text(encoding="utf-8"))
    by_hand = tables(PAGE.read_text(encoding="utf-8"))
    assert [ERROR.sub(" ±", line) for line in given] == [ERROR.sub(" ±", line) for line in by_hand]
    for ours, theirs in zip(given, by_hand, strict=True):
        for error, expected in zip(ERROR.findall(ours), ERROR.findall(theirs), strict=True):
            last_digit = 10 ** -len(error.partition(".")[2])
            assert abs(float(error) - float(expected)) < max(
                0.02 * float(expected), 1.5 * last_digit
            )


def test_terminal_and_json_say_the_same(example: Path):
    done = run(example / "GRPO", example / "TRL")
    for text in ("Handoff robustness (step base)", "+25.0", r"0.008\*\*", "TRL &gt; GRPO"):
        assert text in done.stdout
    found = json.loads(run(example / "GRPO", example / "TRL", "--json").stdout)
    assert (found["seniors"], found["notes"]) == (["GRPO", "TRL"], [])
    assert [table["name"] for table in found["tables"]] == [
        "handoff-step-base", "legibility-base", "summary", "significance",
    ]  # fmt: skip


def test_results_of_other_settings_are_refused_by_name(example: Path):
    summary = example / "TRL/handoff/step/base/summary.json"
    edit(summary, lambda c: c["settings"]["sampling"].update(temperature=1.0))
    done = run(example / "GRPO", example / "TRL")
    assert done.exit_code == 1
    assert "sampling.temperature is 0.6 in the first and 1.0 in the second" in done.stderr
    meant = ("--despite", "sampling.temperature")
    assert run(example / "GRPO", example / "TRL", *meant).exit_code == 0
    edit(summary, lambda c: c["settings"].update(samples=3))
    done = run(example / "GRPO", example / "TRL", *meant)
    assert "samples is None in the first and 3 in the second" in done.stderr


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda c: c["benchmarks"]["A"].pop(), "TP835"),
        (lambda c: c["benchmarks"].pop("A"), "TP835"),
        (lambda c: c["benchmarks"]["A"].reverse(), "TP891"),
        (lambda c: c["benchmarks"]["A"][0].pop("correct"), "TP891"),
        (lambda c: c["benchmarks"]["A"][0].update(correct=7), "TP891"),
        (lambda c: c.update(format=0), "TP891"),
        (lambda c: c["senior"].update(name="a/b"), "TP891"),
        (lambda c: c.update(kind="nonsense"), "TP888"),
    ],
)
def test_damaged_results_are_refused(example: Path, change: Any, code: str):
    edit(example / "TRL/handoff/step/base/summary.json", change)
    done = run(example / "GRPO", example / "TRL")
    assert (done.exit_code, code in done.stderr) == (1, True)


def test_what_only_one_senior_has_and_other_versions_are_noted(example: Path):
    edit(example / "TRL/legibility/base/summary.json", lambda c: c["versions"].update(vllm="0.0.1"))
    shutil.rmtree(example / "TRL/handoff")
    done = run(example / "GRPO", example / "TRL")
    assert done.exit_code == 0
    assert "No table of handoff step base: there is no such result for TRL." in done.stderr
    assert "Handoff" not in done.stdout
    assert "different versions of vllm: 0.0.1" in done.stderr


def test_one_senior_alone_or_twice_or_none_is_refused(example: Path):
    (example / "empty").mkdir()
    for given, said in (
        (["GRPO"], "TP830"),
        (["GRPO", "GRPO"], "TP880"),
        (["empty", "TRL"], "TP881"),
        (["none", "TRL"], "TP892"),
    ):
        assert said in run(*(example / name for name in given)).stderr
    assert run(example).stdout == run(example / "GRPO", example / "TRL").stdout


def test_three_seniors_are_compared_with_the_last(tmp_path: Path):
    for senior, right in {"x": [0, 1, 2], "y": [1, 1, 1], "z": [2, 3, 4]}.items():
        write_handoff(tmp_path, senior, "j", right)
    done = run(*(tmp_path / name for name in "xyz"), "--json")
    found = {table["name"]: table for table in json.loads(done.stdout)["tables"]}
    names = [row[1]["text"] for row in found["handoff-step-j"]["rows"][:5]]
    assert names == ["x", "y", "z", "Δ to x", "Δ to y"]
    compared = [row[1]["text"] for row in found["significance"]["rows"][:2]]
    assert compared == ["z > x", "z > y"]
    # All differ by 2 of 4 from x at k = 1: infinite t.
    assert [cell["text"] for cell in found["significance"]["rows"][0]][3:] == [
        "+50.00", "+inf", "<1e-300",
    ]  # fmt: skip


def test_pooled_seeds_are_one_method_whose_problems_are_means(tmp_path: Path):
    """Of 4 samples, right at problems 0 and 1: TRL-1 has 1 and 2, TRL-2 has 3 and 4, so that pass@1
    is (1 + 3) / 8 = 50 % and (2 + 4) / 8 = 75 %. At k = 4 each run has 100 % in both."""
    for senior, right in {"x": [1, 1], "TRL-1": [1, 2], "TRL-2": [3, 4]}.items():
        write_handoff(tmp_path, senior, "j", right)
    folders = [tmp_path / name for name in ("x", "TRL-1", "TRL-2")]
    found = found_tables(*folders, "--pool", "TRL=TRL-1,TRL-2", "--k", 1)
    table = texts(found["handoff-step-j"])
    assert [row[1:3] for row in table[:3]] == [["x", "25.0"], ["TRL", "62.5"], ["Δ", "+37.5"]]
    assert [row[1:3] for row in table[6:9]] == [["x", "100.0"], ["TRL", "100.0"], ["Δ", "0.0"]]
    # Differences per problem are 25 and 50: mean 37.5, t = 37.5 / (17.68 / √2) = 3, p = 0.102.
    assert texts(found["significance"])[0][3:] == ["+37.50", "+3.00", "0.102"]
    assert texts(found["repeats"]) == [
        ["handoff step j", "pass@1 (%, ↑)", "TRL", "37.5", "87.5", "62.5", "35.4", "25.0"]
    ]


@pytest.mark.parametrize(
    ("pools", "units", "said"),
    [
        (["TRL=x,,y"], [], "TP993"),
        (["TRL=x,none"], [], "TP831"),
        (["a=x", "b=x"], [], "TP832"),
        (["a=x", "a=y"], [], "TP952"),
        (["z=x,y"], [], "TP833"),
        (["a=x,y,z,other"], [], "TP914"),
        (["a=x,y", "b=y"], [], "TP832"),
        (["TRL=x,y"], ["a=x,,y"], "TP993"),
        (["TRL=x,y"], ["a=x,y,none"], "TP831"),
        (["TRL=x,y"], ["a=x,y", "b=y"], "TP832"),
        (["TRL=x,y"], ["a=x"], "TP916"),
    ],
)
def test_pools_and_units_that_cannot_be_are_refused(
    tmp_path: Path, pools: list[str], units: list[str], said: str
):
    for senior in ("x", "y", "z", "other"):
        write_handoff(tmp_path, senior, "j", [0, 1])
    other = tmp_path / "other/handoff/step/j/summary.json"
    edit(other, lambda c: c["settings"].update(sampling={"seed": 1}))
    given = [p for one in pools for p in ("--pool", one)]
    given += [p for one in units for p in ("--unit", one)]
    done = run(*(tmp_path / n for n in ("x", "y", "z", "other")), *given)
    assert done.exit_code == 1
    assert said in done.stderr


def test_hostile_names_stay_text(tmp_path: Path):
    for senior in ("[bold]x|y", "input{z}$&^~"):
        rows = [{"problem": i, "samples": 2, "correct": i} for i in range(2)]
        write_run(tmp_path, "solo", senior, settings={}, benchmarks={"<b>": rows})
    done = run(*tmp_path.iterdir(), "--out", tmp_path / "tables")
    assert done.exit_code == 0, done.output
    markdown = (tmp_path / "tables" / "tables.md").read_text()
    for text in (done.stdout, markdown):
        assert r"\[bold\]x\|y" in text
        assert "<b>" not in text
