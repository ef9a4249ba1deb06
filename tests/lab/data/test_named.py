"""Named sets: what each leaves out, how many problems it has then, and where it is fetched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands.data import _SOURCE
from tandem_plugin.lab.data import NAMED_SETS, DataError, HubSource, load_named, read_problems
from tandem_plugin.lab.data.records import read_hub
from tandem_plugin.lab.evaluation.inputs import read_benchmark

Rows = list[dict[str, Any]]
UNANSWERED = (101, 2_000, 3_154, 20_000, 40_000, 40_315)
"""Rows, counted from 1. Every other one has a solution with a box all the same."""


def deepscaler() -> Rows:
    """As many rows as the real set has, of its fields; those of ``UNANSWERED`` lack an answer."""
    rows: Rows = []
    for row in range(1, 40_316):
        lacks = row in UNANSWERED
        boxed = not lacks or UNANSWERED.index(row) % 2
        solution = rf"So \boxed{{{row}}}." if boxed else "See the figure."
        answer = "" if lacks else str(row)
        rows.append({"problem": f"Add {row} and 0.", "answer": answer, "solution": solution})
    return rows


def hub(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> list[tuple[Any, ...]]:
    """Put these rows behind ``datasets.load_dataset``; what it is called with."""
    calls: list[tuple[Any, ...]] = []

    def load_dataset(path: str, name: str | None, split: str | None, revision: str | None) -> Any:
        calls.append((path, name, split, revision))
        return rows if split else {"train": rows}

    module = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def lines(file: Path, rows: Rows) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout or result.stderr


def test_deepscaler_is_prepared_without_its_unanswered_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    command = ["data", "prepare", "deepscaler", "--to", "openrlhf", "--out", "data"]
    calls = hub(monkeypatch, deepscaler())
    code, said = run(*command, "--heldout", 256)
    assert (code, said.count("skipped: 6"), said.count("  row ")) == (0, 1, 6), said
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["rows"] == {"train": 40_053, "heldout": 256}
    assert [bad["row"] for bad in manifest["bad_rows"]] == list(UNANSWERED)
    (home,) = NAMED_SETS["deepscaler"].homes
    assert calls == [(home.name, None, None, home.revision)]


def test_only_rows_without_an_answer_are_left_out(tmp_path: Path):
    """A row with an answer and without a problem stops the reading, in this set as in others."""
    rows = [*deepscaler()[:200], {"problem": "", "answer": "3"}]
    with refused("problem-row-invalid", row=201):
        load_named("deepscaler", (lines(tmp_path / "given.jsonl", rows),))
    rows = [{"problem": f"Add {i}.", "answer": i} for i in range(30)] + [{"problem": "Add."}]
    with refused("problem-row-invalid", row=31):
        load_named("aime24", (lines(tmp_path / "given.jsonl", rows),))


def gsm8k(count: int) -> Rows:
    """Rows of GSM8K's fields, whose answers are worked solutions."""
    worked = "Twice 3 is <<2*3=6>>6, and 2,000 more.\n#### "
    return [{"question": f"Row {i}?", "answer": f"{worked}{i * 999:,}"} for i in range(count)]


@pytest.mark.parametrize(
    ("marked", "gold"),
    [("1,080", "1080"), ("-12,345,678.5", "-12345678.5"), ("(1,200)", "(1,200)"), ("1,2", "1,2")],
)
def test_commas_of_thousands_are_removed_behind_the_mark_and_no_others(
    tmp_path: Path, marked: str, gold: str
):
    file = lines(tmp_path / "a.jsonl", [{"question": "Add.", "answer": f"So.\n#### {marked}"}])
    assert read_problems(file).problems[0].golds == (gold,)


def test_gsm8ks_training_split_is_not_evaluated_on_unawares(monkeypatch: pytest.MonkeyPatch):
    with refused("evaluation-on-training-split", source="gsm8k", test="gsm8k-test"):
        read_benchmark("gsm8k")
    hub(monkeypatch, gsm8k(3))
    assert len(read_benchmark("trained=openai/gsm8k:main#train").problems) == 3


_WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)


@given(_WORD, _WORD, st.none() | _WORD, st.none() | _WORD)
def test_a_hub_source_is_read_as_it_is_written(
    owner: str, name: str, config: str | None, split: str | None
):
    source = HubSource(f"{owner}/{name}", config, split)
    assert HubSource.parse(str(source)) == HubSource.parse(f"hf://{source}") == source


def test_configurations_and_splits_are_those_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It reads a folder owner/name as it does the set of that name on the Hub."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    card = ["---", "configs:"]
    for config in ("main", "socratic"):
        folder = tmp_path / "openai" / "gsm8k" / config
        folder.mkdir(parents=True)
        card += [f"- config_name: {config}", "  data_files:"]
        for split, count in (("train", 7_473), ("test", 1_319)):
            lines(folder / f"{split}.jsonl", gsm8k(count if config == "main" else 2))
            card += [f"  - split: {split}", f"    path: {config}/{split}.jsonl"]
    (tmp_path / "openai" / "gsm8k" / "README.md").write_text("\n".join([*card, "---", ""]))
    for name, count in (("gsm8k", 7_473), ("gsm8k-test", 1_319)):
        problems = load_named(name).problems
        assert [one.golds for one in problems] == [(str(i * 999),) for i in range(count)]
    assert len(list(read_hub(HubSource("openai/gsm8k", "socratic", "test")))) == 2
    with refused("split-unknown", splits="train, test", split="train"):
        read_hub(HubSource("openai/gsm8k", "socratic"))
    for config in (None, "x"):
        with refused("hub-download-failed"):
            read_hub(HubSource("openai/gsm8k", config, "train"))


def numbered(tmp_path: Path, count: int) -> Path:
    rows = [{"problem": f"Add {i} and 2.", "answer": i + 2} for i in range(count)]
    return lines(tmp_path / "given.jsonl", rows)


def test_a_named_set_is_read_from_the_users_files(tmp_path: Path):
    problems = load_named("aime24", (numbered(tmp_path, 30),))
    assert (problems.name, len(problems)) == ("aime24", 30)
    joined = load_named("aime24-26", (numbered(tmp_path, 30),) * 3)
    assert [one.row for one in joined.problems] == list(range(1, 91))
    with refused("set-size-differs", count=30, where="the given file", rows=29):
        load_named("aime24", (numbered(tmp_path, 29),))
    assert len(load_named("olympiad581", (numbered(tmp_path, 581),)).problems) == 581
    with refused("set-comes-as-file", name="olympiad581", count=581):
        load_named("olympiad581")


def test_what_cannot_be_fetched_says_what_to_bring(monkeypatch: pytest.MonkeyPatch):
    def unreachable(source: HubSource) -> None:
        raise DataError("no network")

    monkeypatch.setattr("tandem_plugin.lab.data.sources.read_hub", unreachable)
    with refused("set-download-failed", home="math-ai/amc23"):
        load_named("amc23-25")
    with refused("set-download-failed", home="math-ai/minervamath"):
        load_named("minerva")


def test_every_set_is_in_the_help_and_fetched_at_a_commit():
    homes = [home for one in NAMED_SETS.values() for home in one.homes]
    no_commit = {"rawsh/2024_AMC12", "sonthenguyen/amc12-2025-non-figure"}
    no_commit |= {"HuggingFaceH4/MATH-500"}  # of these none is known
    assert {home.name for home in homes if len(home.revision or "") != 40} == no_commit
    assert [name for name in NAMED_SETS if f" {name}" not in _SOURCE] == []


def test_amc_is_compiled_as_the_release_compiles_it(tmp_path: Path):
    """40 problems of 2023, and of 2024 and 2025 all but the answers that the release lists."""
    dropped_24 = [
        r"(0, \frac{1}{2})",
        r"[\frac{3}{4}, \frac{7}{8}]",
        r"\frac{\pi}{2} - 2\alpha",
        "D",
    ]

    def file(name: str, answers: list[str]) -> Path:
        rows = [{"question": f"{name} {i}?", "answer": a} for i, a in enumerate(answers)]
        return lines(tmp_path / f"{name}.jsonl", rows)

    parts = (
        file(
            "2023", [*map(str, range(39)), "k"]
        ),  # what is left out in one year is kept in another
        file("2024", [*map(str, range(41)), *dropped_24]),
        file("2025", ["4{:}30", *map(str, range(40)), "k"]),
    )
    found = load_named("amc23-25", parts)
    assert len(found) == 121
    assert found.problems[39].golds == ("k",)
    assert [bad.row for bad in found.bad_rows] == [42, 43, 44, 45, 1, 42]
