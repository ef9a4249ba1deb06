"""What tandem compare says of results."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import (
    edit,
    found_tables,
    run,
    texts,
    write_handoff,
    write_legibility,
    write_run,
)
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.significance import bootstrap_errors

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
    done = run(example / "GRPO", example / "tandem", "--out", example / "tables")
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


@pytest.mark.parametrize("command", ["compare", "report"])
def test_missing_package_is_a_sentence(
    example: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    if command == "report":
        pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "scipy", None)
    arguments = [command, str(example / "GRPO"), str(example / "tandem"), "--out", "tables"]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "scipy is missing" in done.stderr
    assert "command-needs-package" in done.stderr
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert (done.exit_code, done.stderr) == (1, "")
    assert "command-needs-package" in json.loads(done.stdout)["error"]


def test_terminal_and_pipe_say_the_same(example: Path):
    folders = [str(example / name) for name in ("GRPO", "tandem")]
    drawn = CliRunner().invoke(app, ["compare", *folders], env={"FORCE_COLOR": "1"}).stdout
    drawn = re.sub("\x1b\\[[0-9;]*m", "", drawn)
    for text in ("Handoff robustness (step base)", "+25.0", "0.033*", "tandem > GRPO"):
        assert text in drawn
    for text in ("### Handoff robustness (step base)", "+25.0", r"0.033\*", "tandem &gt; GRPO"):
        assert text in run(*folders).stdout


def test_results_of_other_settings_are_refused_by_name(example: Path):
    summary = example / "tandem/handoff/step/base/summary.json"
    edit(summary, lambda c: c["settings"]["sampling"].update(temperature=1.0))
    done = run(example / "GRPO", example / "tandem")
    assert done.exit_code == 1
    assert "sampling.temperature is 0.6 in the first and 1.0 in the second" in done.stderr
    meant = ("--despite", "sampling.temperature")
    assert run(example / "GRPO", example / "tandem", *meant).exit_code == 0
    edit(summary, lambda c: c["settings"].update(samples=3))
    done = run(example / "GRPO", example / "tandem", *meant)
    assert "samples is None in the first and 3 in the second" in done.stderr


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda c: c["benchmarks"]["A"].pop(), "compare-problems-differ"),
        (lambda c: c["benchmarks"].pop("A"), "compare-problems-differ"),
        (lambda c: c["benchmarks"]["A"].reverse(), "summary-field-invalid"),
        (lambda c: c["benchmarks"]["A"][0].pop("correct"), "summary-field-invalid"),
        (lambda c: c["benchmarks"]["A"][0].update(correct=7), "summary-field-invalid"),
        (lambda c: c.update(format=0), "summary-field-invalid"),
        (lambda c: c["senior"].update(name="a/b"), "summary-field-invalid"),
        (lambda c: c.update(kind="nonsense"), "result-not-summary"),
    ],
)
def test_damaged_results_are_refused(example: Path, change: Any, code: str):
    edit(example / "tandem/handoff/step/base/summary.json", change)
    done = run(example / "GRPO", example / "tandem")
    assert (done.exit_code, code in done.stderr) == (1, True)


def test_what_only_one_senior_has_and_other_versions_are_noted(example: Path):
    edit(
        example / "tandem/legibility/base/summary.json",
        lambda c: c["versions"].update(vllm="0.0.1"),
    )
    shutil.rmtree(example / "tandem/handoff")
    done = run(example / "GRPO", example / "tandem")
    assert done.exit_code == 0
    assert "No table of handoff step base: there is no such result for tandem." in done.stderr
    assert "Handoff" not in done.stdout
    assert "different versions of vllm: 0.0.1" in done.stderr


def test_one_senior_alone_or_twice_or_none_is_refused(example: Path):
    (example / "empty").mkdir()
    for given, said in (
        (["GRPO"], "compare-too-few-seniors"),
        (["GRPO", "GRPO"], "compare-same-run"),
        (["empty", "tandem"], "results-unfinished"),
        (["none", "tandem"], "results-folder-missing"),
    ):
        assert said in run(*(example / name for name in given)).stderr
    assert run(example).stdout == run(example / "GRPO", example / "tandem").stdout


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
        "+50.00", "+inf", "<1e-300", "<1e-300",
    ]  # fmt: skip


def test_pooled_seeds_are_one_method_whose_problems_are_means(tmp_path: Path):
    """Of 4 samples, right at problems 0 and 1: tandem-1 has 1 and 2, tandem-2 has 3 and 4: pass@1
    is (1 + 3) / 8 = 50 % and (2 + 4) / 8 = 75 %. At k = 4 each run has 100 % in both."""
    for senior, right in {"x": [1, 1], "tandem-1": [1, 2], "tandem-2": [3, 4]}.items():
        write_handoff(tmp_path, senior, "j", right)
    folders = [tmp_path / name for name in ("x", "tandem-1", "tandem-2")]
    found = found_tables(*folders, "--pool", "tandem=tandem-1,tandem-2", "--k", 1)
    table = texts(found["handoff-step-j"])
    assert [row[1:3] for row in table[:3]] == [["x", "25.0"], ["tandem", "62.5"], ["Δ", "+37.5"]]
    assert [row[1:3] for row in table[6:9]] == [["x", "100.0"], ["tandem", "100.0"], ["Δ", "0.0"]]
    # Differences per problem are 25 and 50: mean 37.5, t = 37.5 / (17.68 / √2) = 3, p = 0.102.
    # At k = 2 they are 25 and 41.67: t = 4, p = 0.078, which is the least of two (at 4 nothing
    # differs): twice it is the corrected p of both.
    assert texts(found["significance"])[0][3:] == ["+37.50", "+3.00", "0.102", "0.156"]
    assert "2 tests" in found["significance"]["note"]
    assert texts(found["repeats"]) == [
        ["handoff step j", "pass@1 (%, ↑)", "tandem", "37.5", "87.5", "62.5", "35.4", "25.0"]
    ]


@pytest.mark.parametrize(
    ("pools", "units", "said"),
    [
        (["tandem=x,,y"], [], "option-not-group"),
        (["tandem=x,none"], [], "compare-name-unknown"),
        (["a=x", "b=x"], [], "compare-name-in-two"),
        (["a=x", "a=y"], [], "option-name-twice"),
        (["z=x,y"], [], "compare-pool-name-taken"),
        (["a=x,y,z,other"], [], "compare-settings-differ"),
        (["a=x,y", "b=y"], [], "compare-name-in-two"),
        (["tandem=x,y"], ["a=x,,y"], "option-not-group"),
        (["tandem=x,y"], ["a=x,y,none"], "compare-name-unknown"),
        (["tandem=x,y"], ["a=x,y", "b=y"], "compare-name-in-two"),
        (["tandem=x,y"], ["a=x"], "compare-unit-missing"),
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


def test_seeds_are_units_where_there_are_several(tmp_path: Path):
    """GRPO's seeds have 25 and 50 % at k = 1, tandem's 75 and 100 %: Δ = 50, both variances 2500/8,
    t = 50 / √312.5 = 2.83 with two degrees of freedom: p = 1/2 - t / (2 √(2 + t²)) = 0.053."""
    for senior, right in {"GRPO-1": 1, "GRPO-2": 2, "tandem-1": 3, "tandem-2": 4, "x": 0}.items():
        write_handoff(tmp_path, senior, "j", [right, right])
    folders = [tmp_path / name for name in ("x", "GRPO-1", "GRPO-2", "tandem-1", "tandem-2")]
    pools = ("--pool", "GRPO=GRPO-1,GRPO-2", "--pool", "tandem=tandem-1,tandem-2")
    found = found_tables(*folders, *pools, "--k", 1)
    table = found["significance-seeds"]
    assert texts(table)[0] == [
        "handoff step j", "tandem > GRPO", "pass@1 (%, ↑)", "+50.00", "+2.83", "2.0", "0.053",
        "0.106",
    ]  # fmt: skip
    # x has one seed; of k = 1, 2 and 4 there is a row each.
    assert [row[1:3] for row in texts(table)] == [
        ["tandem > GRPO", f"pass@{k} (%, ↑)"] for k in (1, 2, 4)
    ]
    # The mean, the spread of two that differ by 25, and that by √2.
    assert texts(found["repeats"])[1][2:] == ["tandem", "75.0", "100.0", "87.5", "17.7", "12.5"]
    assert "significance-seeds" not in found_tables(*folders, "--k", 1)


def test_units_take_the_place_of_seeds_where_they_are_said(tmp_path: Path):
    """Start a: tandem's seeds have 75 and 100 %, GRPO's 25 and 50; start b: 50 and 50, 50 and 25.
    So the starts differ by 50 and 12.5: mean 31.25, error 18.75, t = 5/3 with one degree of
    freedom, p = 1/2 - arctan(5/3) / pi = 0.172. tandem's own means are 87.5 and 50: error 18.75."""
    rights = {
        "x": 0, "G-a1": 1, "G-a2": 2, "G-b1": 2, "G-b2": 1,
        "T-a1": 3, "T-a2": 4, "T-b1": 2, "T-b2": 2,
    }  # fmt: skip
    for senior, right in rights.items():
        write_handoff(tmp_path, senior, "j", [right, right])
    folders = [tmp_path / name for name in rights]
    pools = ("--pool", "G=G-a1,G-a2,G-b1,G-b2", "--pool", "T=T-b2,T-a1,T-a2,T-b1")
    units = ("--unit", "a=G-a1,G-a2,T-a1,T-a2", "--unit", "b=G-b1,G-b2,T-b1,T-b2")
    found = found_tables(*folders, *pools, *units, "--k", 1)
    table = found["significance-units"]
    assert texts(table)[0] == [
        "handoff step j", "T > G", "pass@1 (%, ↑)", "+31.25", "18.75", "+1.67", "1.0", "0.172",
        "0.205",  # at k = 2 t = 3 and p = 0.102, twice which it cannot be less than
    ]  # fmt: skip
    assert "2 units are too few to generalise to another one" in table["note"]
    assert texts(found["repeats"])[1][-1] == "18.8"
    assert "significance-seeds" not in found
    ignored = found_tables(*folders, *pools, "--k", 1)
    assert float(texts(ignored["significance-seeds"])[0][-2]) < 0.05
    one = found_tables(*folders, *pools, "--unit", "a=" + ",".join(list(rights)[1:]), "--k", 1)
    assert texts(one["significance-units"])[0][3:] == ["–"] * 6
    fewer = [folder for folder in folders if "G-b" not in folder.name]
    units = ("--unit", "a=G-a1,G-a2,T-a1,T-a2", "--unit", "b=T-b1,T-b2")
    both = found_tables(*fewer, "--pool", "G=G-a1,G-a2", *pools[2:], *units, "--k", 1)
    assert texts(both["significance-units"])[0][3:] == ["–"] * 6  # they share one unit


def test_truncated_responses_stand_beside_every_accuracy(tmp_path: Path):
    rates = {"x": 0.0, "T-1": 0.246, "T-2": 0.322, "silent": None}
    outcomes = {"correct": 5, "copied": 1, "no_answer": 2, "timeout": 1, "error": 1}
    for senior, rate in rates.items():
        write_handoff(tmp_path, senior, "j", [1, 1])
        if rate is not None:
            file = tmp_path / senior / "handoff/step/j/summary.json"
            content = json.loads(file.read_text())
            metrics = {"A": {"truncated": rate, "outcomes": outcomes}}
            file.write_text(json.dumps(content | {"metrics": metrics}))
    folders = [tmp_path / name for name in rates]
    found = found_tables(*folders, "--pool", "T=T-1,T-2")
    assert texts(found["truncated-handoff-step-j"]) == [["x", "0.0"], ["T", "28.4"]]
    assert texts(found["ungraded-handoff-step-j"]) == [["x", "40.0"], ["T", "40.0"]]


def test_legibility_over_positions_weighs_problems_by_their_tokens(tmp_path: Path):
    """10 tokens of 0.1 nats and 30 of 0.3: 0.25 over positions, 0.2 over problems. Tests stay over
    problems, as the paper's."""
    for senior, more in {"x": 0.0, "y": 0.2}.items():
        write_legibility(tmp_path, senior, "j", [0.1 + more, 0.3 + more], [10, 30])
    folders = tmp_path / "x", tmp_path / "y"
    by_problem = found_tables(*folders)
    by_position = found_tables(*folders, "--legibility-over", "positions")
    assert texts(by_problem["legibility-j"])[0][2] == "0.200"
    assert [row[2] for row in texts(by_position["legibility-j"])[:3]] == [
        "0.250",
        "0.450",
        "+0.200",
    ]
    assert by_position["legibility-j"]["title"].endswith("over all positions")
    assert texts(by_position["significance"]) == texts(by_problem["significance"])
    assert texts(by_position["summary"])[0][1] == "0.250"


def test_positions_of_pooled_seeds_are_each_seeds_own(tmp_path: Path):
    """0.1 and 0.3 by 10 and 30 tokens are 0.25, by 30 and 10 tokens 0.15: 0.2 on average."""
    write_legibility(tmp_path, "x-1", "j", [0.1, 0.3], [10, 30])
    write_legibility(tmp_path, "x-2", "j", [0.1, 0.3], [30, 10])
    write_legibility(tmp_path, "y", "j", [0.1, 0.1], [1, 1])
    folders = [tmp_path / name for name in ("y", "x-1", "x-2")]
    over = ("--legibility-over", "positions")
    found = found_tables(*folders, "--pool", "x=x-1,x-2", *over)
    assert texts(found["legibility-j"])[1][1:3] == ["x", "0.200"]
    assert texts(found["repeats"])[0][3:6] == ["0.250", "0.150", "0.200"]


def test_error_over_positions_is_that_of_resampled_problems():
    """A ratio's standard error by its linearisation: that of the residuals w (x - r) over the mean
    weight. 400 problems: bootstrap and linearisation agree to a few percent; the error of the plain
    mean is 1.6 times as large."""
    random = np.random.default_rng(0)
    weights = random.integers(20, 400, 400).astype(float)
    values = 0.2 + 20 / weights[:, None] * random.normal(size=(400, 1))
    errors, _ = bootstrap_errors({"A": values}, 4000, weights={"A": weights})
    ratio = (weights @ values) / weights.sum()
    residuals = weights[:, None] * (values - ratio) / weights.mean()
    expected = residuals.std(ddof=1) / np.sqrt(400)
    assert errors["A"][0] == pytest.approx(expected, rel=0.06)
    assert bootstrap_errors({"A": values}, 4000)[0]["A"][0] > 1.3 * expected


def test_benchmarks_given_in_another_order_are_still_compared_problem_by_problem(tmp_path: Path):
    """A is easy and B is hard: paired by place instead of by name, nothing would be significant."""
    rights = {"A": [3, 4, 3], "B": [0, 1, 0]}
    for out, orders in {"same": ("AB", "AB"), "turned": ("AB", "BA")}.items():
        for senior, order, more in (("x", orders[0], 0), ("y", orders[1], 1)):
            benchmarks = {
                name: [
                    {"problem": i, "samples": 5, "correct": right + more}
                    for i, right in enumerate(rights[name])
                ]
                for name in order
            }
            settings = {"schedule": {"schedule": "step"}}
            place = tmp_path / out, "handoff", senior, "j", "step"
            write_run(*place, settings=settings, benchmarks=benchmarks)
    same = found_tables(tmp_path / "same/x", tmp_path / "same/y")
    turned = found_tables(tmp_path / "turned/x", tmp_path / "turned/y")
    assert turned == same
    assert texts(same["significance"])[0][-1].startswith("<")


def test_sharpness_is_shown_beside_legibility_where_the_results_have_it(
    make_results: Any,
) -> None:
    """The senior's entropy is no better high or low: it is neither bold nor tested."""
    for senior, values in {"GRPO": (0.5, 0.25), "tandem": (0.75, 0.125)}.items():
        out = make_results(senior, [1, 2, 3], kinds=("legibility",))

        def sharpen(content: Any, values: tuple[float, float] = values) -> None:
            for row in content["benchmarks"]["sums"]:
                row |= dict(zip(("entropy", "kl"), values, strict=True))

        edit(out / senior / "legibility/base/summary.json", sharpen)
    found = found_tables(out / "GRPO", out / "tandem")
    rows = found["legibility-base"]["rows"]
    (start,) = [i for i, row in enumerate(rows) if row[0]["text"] == "Senior's entropy (nats)"]
    of_entropy, of_kl = rows[start : start + 3], rows[start + 3 : start + 6]
    assert [row[-1]["text"] for row in of_entropy] == ["0.500", "0.750", "+0.250"]
    assert not any(cell["bold"] for row in of_entropy for cell in row)
    assert [row[-1]["bold"] for row in of_kl] == [False, True, True]
    tested = {row[2]["text"] for row in found["significance"]["rows"]}
    assert "KL(senior || junior) (nats, ↓)" in tested
    assert not any("entropy (nats)" in name for name in tested)


def test_seniors_without_a_result_in_common_are_not_compared(example: Path):
    for senior, kept in (("GRPO", "handoff"), ("tandem", "legibility")):
        for folder in (example / senior).iterdir():
            if folder.name != kept:
                shutil.rmtree(folder)
    done = run(example / "GRPO", example / "tandem")
    assert done.exit_code == 1
    assert "GRPO and tandem have no results in common" in done.stderr
    assert "[compare-no-common-results]" in done.stderr


def write_handover(out: Path, senior: str, first: str, after: int, right: list[int]) -> None:
    rows = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
    label = f"handover,first={first},after={after}"
    rule = {"schedule": "handover", "first": first, "after": after, "label": label}
    settings = {"schedule": rule, "junior": "base"}
    write_run(out, "handoff", senior, "base", label, settings=settings, benchmarks={"A": rows})


def test_handovers_are_told_apart_by_direction_and_place(tmp_path: Path) -> None:
    """Of 4 samples each: the means over places are problem by problem, and so are their tests."""
    right: dict[tuple[str, str, int], list[int]] = {
        ("GRPO", "senior", 64): [0, 1, 2, 1], ("tandem", "senior", 64): [2, 3, 2, 2],
        ("GRPO", "senior", 128): [2, 3, 2, 3], ("tandem", "senior", 128): [4, 3, 4, 3],
        ("GRPO", "junior", 64): [1, 1, 2, 0], ("tandem", "junior", 64): [1, 1, 2, 0],
    }  # fmt: skip
    for (senior, first, after), correct in right.items():
        write_handover(tmp_path, senior, first, after, correct)
        write_handoff(tmp_path, senior, "base", [1, 2, 3, 4])
    tables = found_tables(tmp_path / "GRPO", tmp_path / "tandem")
    rows = texts(tables["handovers"])
    assert [[row[0], *row[2:4]] for row in rows if row[0]] == [
        ["continued after 64: pass@1 (%, ↑)", "GRPO", "25.0"],
        ["continued after 128: pass@1 (%, ↑)", "GRPO", "62.5"],
        ["continued, mean: pass@1 (%, ↑)", "GRPO", "43.8"],
        ["recovered after 64: pass@1 (%, ↑)", "GRPO", "25.0"],
    ]
    means = np.array([[2, 4, 4, 4], [6, 6, 6, 5]]) / 8
    (mean,) = (
        row for row in tables["handovers"]["rows"] if row[0]["text"].startswith("continued, m")
    )
    errors, _ = bootstrap_errors({"A": means.T})
    assert float(mean[3]["error"]) == pytest.approx(100 * errors["A"][0], abs=0.06)
    tested = [row for row in texts(tables["significance"]) if row[2].startswith("pass@1 ")]
    assert [row[0] for row in tested] == [
        "handoff handover,first=junior,after=64 base",
        "handoff step base",
        "continued base",
    ]
    assert tested[2][3] == f"{100 * (means[1] - means[0]).mean():+.2f}"
    headings = tables["summary"]["columns"]
    assert [name for name in headings if "after" in name or "continued" in name] == [
        "handoff handover,first=junior,after=64 base: pass@4 (%, ↑)",
        "continued base: pass@4 (%, ↑)",
    ]


def test_a_handover_of_other_settings_is_a_run_of_its_own(tmp_path: Path) -> None:
    for senior in ("GRPO", "tandem"):
        write_handover(tmp_path, senior, "senior", 64, [1, 2])
        path = tmp_path / senior / "handoff" / "handover,first=senior,after=64" / "base"
        edit(path / "summary.json", lambda c: c["settings"]["schedule"].update(alone=0.25))
    assert "handovers" not in found_tables(tmp_path / "GRPO", tmp_path / "tandem")
