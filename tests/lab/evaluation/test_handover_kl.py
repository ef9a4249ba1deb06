from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import found_tables, texts, write_run
from refused import refused
from scipy import stats

from tandem_plugin.lab.evaluation.handover_kl import (
    KIND,
    _files,
    halves_by_kl,
    handover_place,
    run_handover_kl,
)
from tandem_plugin.lab.evaluation.inputs import Checkpoint
from tandem_plugin.lab.evaluation.measures import headline
from tandem_plugin.lab.evaluation.report import build_report
from tandem_plugin.lab.evaluation.results import read_summary
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile, grades_file

SENIOR, JUNIOR = Checkpoint("s", "", "00"), Checkpoint("base", "", "11")
RULE = {"schedule": "handover", "first": "senior", "after": 2}
LABEL = "handover,first=senior,after=2"
SAMPLING = {"samples": 2, "temperature": 0.6}


def settings(**rule: Any) -> dict[str, Any]:
    schedule = {**RULE, "label": LABEL, **rule}
    return {
        "sampling": SAMPLING,
        "schedule": schedule,
        "junior": "11",
        "benchmarks": {"sums": {"prompt_ids": "00"}},
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A finished run with one handover: two problems, two responses to each."""
    rows = [{"problem": i, "samples": 2, "correct": 1} for i in range(2)]
    folder = write_run(
        tmp_path, "handoff", "s", "base", LABEL, settings=settings(), benchmarks={"sums": rows}
    )
    path = folder / "sums.jsonl"
    with RolloutFile(path, {}) as file, RolloutFile(grades_file(path), {}) as grades:
        for problem, sample, outcome in ((1, 0, "correct"), (0, 1, "no_answer"), (0, 0, "correct")):
            file.append(problem, sample, response(3))
            grades.append(problem, sample, {"outcome": outcome})
        file.append(1, 1, response(2))  # it ended before the place
        grades.append(1, 1, {"outcome": "correct"})
    return tmp_path


def response(tokens: int) -> dict[str, Any]:
    ids = list(range(tokens))
    authors = [int(place < 2) for place in ids]
    text = {"response": "", "answer": ["1"], "prompt_ids": [5]}
    return {**text, "response_ids": ids, "authorship": authors}


def write_scores(out: Path, kls: dict[tuple[int, int], Any]) -> Path:
    run = read_summary(out / "s" / "handoff" / LABEL / "base" / "summary.json")
    (file,) = _files(out, run, "auto")
    with RolloutFile(file.path, file.settings) as lines:
        for place, kl in kls.items():
            lines.append(*place, {"kl": kl})
    return file.path


def test_finished_scores_meet_their_grades_without_pytorch(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    write_scores(out, {(1, 0): 0.5, (0, 1): 0.25, (1, 1): None, (0, 0): 2.0})
    (path,) = run_handover_kl(out, SENIOR, JUNIOR)
    assert path == out / "s" / KIND / LABEL / "base" / "summary.json"
    summary = read_summary(path)
    assert summary.problems["sums"] == [
        {"problem": 0, "kl": [2.0, 0.25], "continued": [1, 0]},
        {"problem": 1, "kl": [0.5], "continued": [1]},
    ]
    assert headline(summary) == {"handovers": 3, "kl": pytest.approx(2.75 / 3)}


@pytest.mark.parametrize("kl", ["0.5", True, math.nan])
def test_score_that_is_no_number_is_rejected(out: Path, kl: Any) -> None:
    write_scores(out, {(0, 0): kl})
    with refused("rollout-line-invalid"):
        run_handover_kl(out, SENIOR, JUNIOR)


def test_other_weights_and_other_schedules_are_not_read(out: Path) -> None:
    with refused("solo-run-other-model", name="base", fingerprint="12"):
        run_handover_kl(out, SENIOR, Checkpoint("base", "", "12"))
    assert run_handover_kl(out, SENIOR, Checkpoint("small", "", "11")) == []
    assert run_handover_kl(out, Checkpoint("unknown", "", "00"), JUNIOR) == []
    rows = [{"problem": 0, "samples": 2, "correct": 1}]
    for i, rule in enumerate(
        ({"first": "junior"}, {"end": 0.5}, {"alone": 0.5}, {"schedule": "step"})
    ):
        write_run(
            out,
            "handoff",
            "other",
            "base",
            str(i),
            settings=settings(**rule),
            benchmarks={"A": rows},
        )
    assert run_handover_kl(out, Checkpoint("other", "", "00"), JUNIOR) == []


def test_place_of_the_handover_is_the_juniors_first_token() -> None:
    assert handover_place([1, 1, 0, 0]) == 2
    assert handover_place([0]) == 0
    assert handover_place([1, 1]) is None
    assert handover_place([]) is None


def write_kls(out: Path, senior: str, problems: list[tuple[list[float], list[int]]]) -> Path:
    rows = [
        {"problem": i, "kl": kl, "continued": continued}
        for i, (kl, continued) in enumerate(problems)
    ]
    return write_run(
        out, KIND, senior, "base", LABEL, settings=settings(), benchmarks={"sums": rows}
    )


def test_halves_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    problems = [
        (generator.exponential(size=n).tolist(), generator.integers(0, 2, n).tolist())
        for n in generator.integers(0, 5, 40)
    ]
    apart = [([3.0], [0]), ([], [])]
    runs = {
        name: [read_summary(write_kls(tmp_path, name, rows) / "summary.json")]
        for name, rows in (("GRPO", problems), ("tandem", apart))
    }
    halves = halves_by_kl(runs)
    kls = [kl for of_problem, _ in [*problems, *apart] for kl in of_problem]
    border = sorted(kls)[len(kls) // 2]
    if len(kls) % 2 == 0:
        border = (border + sorted(kls)[len(kls) // 2 - 1]) / 2
    pairs = [pair for rows in problems for pair in zip(*rows, strict=True)]
    low = [right for kl, right in pairs if kl < border]
    high = [right for kl, right in pairs if kl >= border]
    found = halves["GRPO"]
    assert found.low[0] == pytest.approx(sum(low) / len(low))
    assert found.high[0] == pytest.approx(sum(high) / len(high))
    assert found.unseen == pytest.approx(low.count(0) / len(pairs))
    assert found.correlation == pytest.approx(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    # As many handovers a problem as here: the error is nearly that of independent ones.
    binomial = math.sqrt(found.low[0] * (1 - found.low[0]) / len(low))
    assert 0.6 * binomial < found.low[1] < 1.5 * binomial
    alone = halves["tandem"]
    assert math.isnan(alone.low[0])
    assert alone.high == (0.0, 0.0)
    assert math.isnan(alone.correlation)


def test_table_has_both_seniors_and_nothing_without_handovers(tmp_path: Path) -> None:
    write_kls(tmp_path, "GRPO", [([0.1, 0.9], [0, 1]), ([0.2], [0])])
    write_kls(tmp_path, "tandem", [([0.1, 0.3], [1, 1]), ([0.8], [0])])
    table = found_tables(tmp_path / "GRPO", tmp_path / "tandem")["handover-kl"]
    assert [row[1:] for row in texts(table)] == [
        ["GRPO", "0.2000", "0.0", "100.0", "66.7", "+0.87"],
        ["tandem", "0.3000", "100.0", "50.0", "0.0", "-0.87"],
    ]
    assert [row[0] for row in texts(table)] == ["base", ""]
    empty = write_kls(tmp_path, "empty", [([], [])])
    assert halves_by_kl({"empty": [read_summary(empty / "summary.json")]}) == {}


def test_pooled_runs_and_reports_have_the_table(tmp_path: Path) -> None:
    for name in ("GRPO", "tandem", "tandem-2"):
        write_kls(tmp_path, name, [([0.1, 0.9], [0, 1]), ([0.2], [0])])
    folders = [tmp_path / name for name in ("GRPO", "tandem", "tandem-2")]
    tables = found_tables(*folders, "--pool", "tandem=tandem,tandem-2")
    assert texts(tables["handover-kl"])[1][1:3] == ["tandem", "0.2000"]
    build_report([tmp_path], tmp_path / "report", None, {}, "problems", {})
    page = (tmp_path / "report" / "index.html").read_text()
    assert "by KL(senior || junior) at the handover" in page


def test_summary_with_unequal_lists_is_rejected(tmp_path: Path) -> None:
    folder = write_kls(tmp_path, "GRPO", [([0.1, 0.9], [0])])
    with refused("summary-field-invalid"):
        read_summary(folder / "summary.json")
