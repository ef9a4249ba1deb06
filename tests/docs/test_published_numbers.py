"""Every number with an error in README and the pages is recomputed from rows in the repository."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo"
sys.path.insert(0, str(DEMO))
PAGES = [ROOT / "README.md", DEMO / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")
STUDY = re.compile(r"\[`make study`\].*?(?=\n\n|\Z)", re.DOTALL)
"""The paragraph about the study, whose own tests recompute its numbers."""
WORLDS = ROOT / "examples" / "study" / "results" / "worlds" / "worlds.md"
"""Another test recomputes it from its rows."""

evaluation = pytest.importorskip("evaluation", reason="NumPy is not installed")
pytest.importorskip("torch", reason="torch is not installed")
measures = pytest.importorskip("measures", reason="transformers is not installed")
advantage = pytest.importorskip("advantage", reason="psutil or pyarrow is not installed")
SUMS = evaluation.RESULTS / "sums.jsonl"


def published(rows: str) -> list[list[str]]:
    scores = evaluation.read_scores(evaluation.RESULTS / rows)
    assert scores, f"{rows} is missing"
    return (measures if rows == "languages.jsonl" else evaluation).table(scores)


@pytest.mark.parametrize(
    ("page", "rows"),
    [("docs/results.md", "words.jsonl"), ("examples/demo/README.md", "words.jsonl"),
     ("examples/demo/README.md", "sums.jsonl"), ("docs/results.md", "languages.jsonl"),
     ("examples/demo/README.md", "languages.jsonl")],
)  # fmt: skip
def test_the_demos_table_is_that_of_its_rows(page: str, rows: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for line in evaluation.markdown(published(rows)):
        assert line in text, line


def languages() -> Any:
    return evaluation.read_scores(evaluation.RESULTS / "languages.jsonl")


def test_readme_of_the_demo_has_the_numbers_of_each_seed() -> None:
    seeds = {(score.trained, score.seed) for score in languages()}
    methods = (measures.TAUGHT, evaluation.GRPO, evaluation.TANDEM)
    assert seeds == {(name, seed) for name in methods for seed in (10, 11, 12)}
    text = (DEMO / "README.md").read_text(encoding="utf-8")
    for line in evaluation.markdown(measures.table_of_seeds(languages())):
        assert line in text, line


def of_seeds(scores: Any, trained: str, steps: int, measure: str) -> str:
    """In %, as a sentence lists them."""
    found = [
        measures.percent([score])
        for score in sorted(scores, key=lambda score: score.seed)
        if (score.trained, score.steps, score.authors) == (trained, steps, measure)
    ]
    return f"{', '.join(found[:-1])} and {found[-1]}%"


def test_readme_of_the_demo_lists_the_seeds_and_what_was_tried_before() -> None:
    text = " ".join((DEMO / "README.md").read_text(encoding="utf-8").split())
    last = (("GRPO", 8), ("tandem", 24))
    both = [(*last_one, measure) for last_one in last for measure in ("alone", "continued")]
    listed = {
        "languages": both,
        "languages-seen": [*both, ("GRPO", 8, "English")],
        "languages-earlier": [
            *(("GRPO", 8, measure) for measure in ("alone", "English")),
            *(("tandem", steps, "alone") for steps in (16, 24)),
        ],
    }
    for name, rows in listed.items():
        scores = evaluation.read_scores(evaluation.RESULTS / f"{name}.jsonl")
        for row in rows:
            assert of_seeds(scores, *row) in text, (name, row)


def test_readme_has_the_means_of_the_demo() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    _, alone, continued, *_ = published("languages.jsonl")
    for (_, _, grpo, tandem, _), sentence in (
        (alone, "solves {tandem}% alone and GRPO's {grpo}%"),
        (continued, "continues {tandem}% of its beginnings and {grpo}% of GRPO's"),
    ):
        assert sentence.format(tandem=tandem, grpo=grpo) in text


def test_the_real_models_table_is_of_three_seeds() -> None:
    seeds = {(one.trained, one.seed) for one in evaluation.read_scores(SUMS)}
    assert seeds == {(name, seed) for name in ("before", "tandem") for seed in (7, 8, 9)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_with_an_error_comes_from_the_rows(page: Path) -> None:
    tables = [row for name in ("words", "sums", "languages") for row in published(f"{name}.jsonl")]
    tables += measures.table_of_seeds(languages())
    tables += advantage.table(advantage.read_rows(evaluation.RESULTS / "advantage.jsonl"))
    known = {number for row in tables for cell in row for number in [cell, *NUMBER.findall(cell)]}
    known.update(NUMBER.findall(WORLDS.read_text(encoding="utf-8")))
    text = " ".join(STUDY.sub("", page.read_text(encoding="utf-8")).split())
    assert [found for found in NUMBER.findall(text) if found not in known] == []


def test_the_demo_learns_by_ten_points_and_three_errors_everywhere() -> None:
    heading, *rows = published("words.jsonl")
    assert len(rows) == 6  # alone and as a team, at three temperatures
    for place in (i for i, name in enumerate(heading) if name == "rise"):
        for row in rows:
            points, error = map(float, row[place].split(" ± "))
            assert points >= 10, row
            assert points >= 3 * error, row


def test_the_rows_are_small_enough_to_be_kept() -> None:
    kept = [file for file in (ROOT / "examples").rglob("*.jsonl") if "results" in file.parts]
    assert sum(file.stat().st_size for file in kept) < 5_000_000


FAMILIES = ROOT / "integration_tests" / "engine" / "test_families.py"


def constants(file: Path) -> dict[str, Any]:
    """What a module assigns to its names, as far as it is written out; else a mapping's keys."""
    found: dict[str, Any] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                keys = [key for key in value.keys if key] if isinstance(value, ast.Dict) else []
                for written in (value, ast.List(keys)):
                    with suppress(ValueError):
                        found.setdefault(name, ast.literal_eval(written))
    return found


def compared_tokens() -> list[list[str]]:
    """The rows of the table of models with recurrent states: the two models, and how many tokens
    their tests compare, by runner and kind of test; blank where there is no such test."""
    tests = constants(FAMILIES)
    requests, length = 4 * len(tests["PROMPTS"]), tests["LENGTH"]
    found = [[f"`{family}`, itself", 2 * length, *[0] * 5] for family in tests["ITSELF"]]
    for pair in tests["STATES"]:
        syncs = 0 if pair[0] in tests["MIXTURES"] else len(tests["SYNCS"]) + 1  # and a sleep
        tight = tests["TIGHT"]["v1"], 2 * tests["TIGHT"]["v1"]
        on_v2 = [(1 + len(tests["ON_V2_SYNCS"])) * length]
        on_v2 += [tests["TIGHT"]["v2"], 2 * tests["TIGHT"]["v2"]]
        on_v2 = on_v2 if pair in tests["ON_V2"] else [0] * 3
        found.append([f"`{pair[0]}`, `{pair[1]}`", (1 + syncs) * length, *tight, *on_v2])
    return [[name, *(f"{requests * n:,}" if n else "" for n in each)] for name, *each in found]


def test_table_of_recurrent_states_has_the_pairs_and_the_tokens_that_tests_compare() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    table = page.split("### With recurrent states")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for row, expected in zip(rows, compared_tokens(), strict=True):
        shown = [
            e if cell == "not run" and e else cell for cell, e in zip(row, expected, strict=True)
        ]
        assert shown == expected


def test_table_of_quantised_juniors_is_that_of_its_rows() -> None:
    file = ROOT / "benchmarks" / "results" / "quantised_juniors.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for junior in dict.fromkeys(row["junior"] for row in rows):
        seeds = [row for row in rows if row["junior"] == junior]
        cells = [junior]
        for name, digits in (("kl", 6), ("overlap", 4)):
            cells.append(", ".join(f"{row[name]:.{digits}f}" for row in seeds))
        for name in ("team", "continued"):
            percents = (100 * sum(row[name]) / (row["samples"] * len(row[name])) for row in seeds)
            cells.append(", ".join(f"{percent:.1f}" for percent in percents))
        assert f"| {' | '.join(cells)} |" in page


BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.parametrize("part", ["lockstep", "selection", "replay_throughput"])
def test_tables_of_a_cpu_are_those_of_their_rows(part: str, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    content = json.loads((BENCHMARKS / "results" / f"{part}.json").read_text(encoding="utf-8"))
    table = importlib.import_module(part).table(content)
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert table.markdown(content) in page
    for name in ("processor", "cores", "memory", "versions", "commit"):
        assert content["machine"][name] in page


def test_benchmarks_start_where_there_is_no_pytest() -> None:
    """``make bench`` creates no environment for tests, and a user's on a GPU need not have it."""
    modules = "import run, speculative, gpu, support.calling_models, support.engine"
    paths = [str(BENCHMARKS), str(ROOT / "integration_tests")]
    program = f"import sys; sys.modules['pytest'] = None; sys.path[:0] = {paths}; {modules}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
