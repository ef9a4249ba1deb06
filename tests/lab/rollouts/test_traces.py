"""``tandem replay --without-seed``: traces of others, against the law of a schedule."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.cli import app
from tandem_plugin.lab.rollouts.traces import TraceAudit, read_traces

RELEASE = Path(__file__).parents[1] / "evaluation" / "release"
Make = Callable[..., tuple[TraceAudit, list[dict[str, Any]]]]


def authors_of(
    tokens: list[int],
    is_boundary: list[bool],
    cap: int,
    p: float,
    coin: random.Random,
    evicted: set[int] | None = None,
) -> tuple[list[int], int]:
    """Authors as the release writes them: a counter of tokens, which draws when it reaches the cap.

    evicted: positions before which the request leaves the batch. When it comes back, the release
    replays its tokens with new draws: the counter is right, the author is another draw. Also how
    many changes of author that made where none was due.
    """
    authors, since, wrong = [], 0, 0
    author, is_due = coin.random() < p, True
    for position, boundary in enumerate(is_boundary):
        if position in (evicted or ()):
            before, author = author, coin.random() < p
            wrong += not is_due and author != before
        authors.append(int(author))
        since += 1
        is_due = boundary or since >= cap
        if is_due:
            author, since = coin.random() < p, 0
    return authors, wrong


@pytest.fixture
def make(byte_level: Vocabulary) -> Make:
    """An audit of a rule, and traces of it as the release has them, its cap one more."""

    def made(
        rows: int,
        p: float = 0.5,
        cap: int = 4,
        length: int = 60,
        evictions: int = 0,
        drawn_with: float | None = None,
    ) -> tuple[TraceAudit, list[dict[str, Any]]]:
        config = TandemConfig.from_mapping({"schedule": "word", "p": p, "cap": cap})
        rule = TandemRules(config, byte_level).default
        coin = random.Random(f"{rows} {p} {cap} {evictions} {drawn_with}")
        traces = []
        for _ in range(rows):
            tokens = coin.choices(range(8), k=length)
            bits = rule.boundaries.contains(np.array(tokens)).tolist()
            evicted = set(coin.sample(range(1, length), evictions))
            mask, wrong = authors_of(tokens, bits, cap + 1, drawn_with or p, coin, evicted)
            traces.append({"token_ids": tokens, "tandem_model_mask": mask, "wrong": wrong})
        return TraceAudit(rule.schedule, rule.boundaries, 10, 100), traces  # type: ignore[arg-type]

    return made


@pytest.mark.parametrize(("p", "cap"), [(0.5, 31), (0.5, 4), (0.2, 1), (0.9, 7)])
def test_traces_of_the_law_are_accepted(make: Make, p: float, cap: int):
    audit, traces = make(300, p, cap)
    audit.add(enumerate(traces, 1))
    assert (audit.rows, audit.wrong_changes, audit.differing_rows) == (300, 0, 0)
    assert all(test.is_as_expected for test in audit.tests().values())


def test_an_author_that_eviction_changed_is_found_and_nothing_else(make: Make):
    """Each change where none was due is counted; half of the evictions change nothing."""
    audit, traces = make(400, evictions=1)
    audit.add(enumerate(traces, 1))
    lost = [line for line, trace in enumerate(traces, 1) if trace["wrong"]]
    assert audit.differing_rows == len(lost) > 50
    # A change of author where none was due shows at the evicted position itself, or not at all.
    assert audit.wrong_changes == sum(trace["wrong"] for trace in traces)
    assert [found.line for found in audit.differences] == lost[:10]


def test_the_wrong_cap_is_found(make: Make):
    audit, traces = make(100, cap=4)
    audit.schedule = TandemConfig(cap=5).make_schedule()  # type: ignore[assignment]
    audit.add(enumerate(traces, 1))
    assert audit.differing_rows > 0


def test_a_share_of_another_p_is_found(make: Make):
    audit, traces = make(40, length=200, drawn_with=0.6)
    audit.add(enumerate(traces, 1))
    share, _ = audit.tests().values()
    assert audit.differing_rows == 0
    assert share.observed == pytest.approx(0.6, abs=0.05)
    assert not share.is_as_expected


@pytest.mark.parametrize("p", [0.5, 0.2])
def test_the_error_of_changes_is_that_of_simulated_draws(make: Make, p: float):
    audit, traces = make(1, p, length=400)
    audit.add([(1, traces[0])])
    test = audit.tests()["draws that change the author"]
    coins = np.random.default_rng(0).random((20_000, audit.draws)) < p
    shares = (coins[:, 1:] != coins[:, :-1]).mean(axis=1)
    assert shares.mean() == pytest.approx(test.expected, abs=0.002)
    assert shares.std() == pytest.approx(test.error, rel=0.03)


def test_authors_that_alternate_are_not_the_law(make: Make):
    """Their share is right, and no change is where none is due: only the runs are wrong."""
    audit, traces = make(1, length=400)
    (trace,) = traces
    audit.add([(1, trace)])
    audit.changes = audit.pairs
    share, runs = audit.tests().values()
    assert not runs.is_as_expected
    assert share.is_as_expected


def run(file: Path, tokenizer: Path, *options: str) -> tuple[int, Any]:
    command = ["replay", str(file), "--tokenizer", str(tokenizer), "--without-seed", "--json"]
    done = CliRunner().invoke(app, [*command, *options])
    return done.exit_code, json.loads(done.stdout) if done.stdout else done.output


def test_each_form_of_traces_is_read(make: Make, tmp_path: Path, tokenizer_file: Path):
    _, traces = make(30, cap=31)
    completions = tmp_path / "completions.jsonl"  # vLLM's completions of the release
    completions.write_text("".join(json.dumps(trace) + "\n" for trace in traces))
    samples = [
        {"token_ids": one["token_ids"], "model_mask": one["tandem_model_mask"]} for one in traces
    ]
    result = tmp_path / "word_handoff.json"  # the result of a reproduction of it
    result.write_text(json.dumps({"phase": "word-handoff", "gens": [{"samples": samples}]}))
    ours = tmp_path / "ours.jsonl"
    ours.write_text(
        "".join(
            json.dumps({"response_ids": t["token_ids"], "authorship": t["tandem_model_mask"]})
            + "\n"
            for t in traces
        )
    )
    found = [run(file, tokenizer_file, "--set", "cap=31") for file in (completions, result, ours)]
    for code, one in found:
        assert (code, one["ok"], one["rows"], one["differing_rows"]) == (0, True, 30, 0)
    assert len({json.dumps(one["tests"]) for _, one in found}) == 1


def test_results_of_texts_alone_and_other_files_are_refused(tmp_path: Path):
    for phase in ("solo", "handoff"):
        with refused("trace-without-token-ids"):
            list(read_traces(RELEASE / f"{phase}.json"))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"token_ids": []}\n{\n')
    with refused("trace-not-json", number=2):
        list(read_traces(broken))


def test_a_row_without_an_author_for_each_token_is_malformed(tmp_path: Path, tokenizer_file: Path):
    rows = [
        {"token_ids": [1, 2], "tandem_model_mask": [1]},
        {"token_ids": [1], "tandem_model_mask": None},
        {"token_ids": [1], "tandem_model_mask": [2]},
        {"token_ids": [], "tandem_model_mask": []},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, found = run(file, tokenizer_file)
    assert (code, found["differing_rows"], found["rows"]) == (1, 3, 1)
    assert all("trace-authors-count-differs" in one["message"] for one in found["shown"])


def test_a_schedule_that_does_not_draw_is_refused(tmp_path: Path, tokenizer_file: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"token_ids": [1], "tandem_model_mask": [1]}\n')
    command = ["replay", str(file), "--tokenizer", str(tokenizer_file), "--without-seed"]
    done = CliRunner().invoke(app, [*command, "--schedule", "solo"])
    assert (done.exit_code, "trace-seed-missing" in done.output) == (1, True)
    plain = CliRunner().invoke(app, command)
    assert (plain.exit_code, "Consistent with the schedule." in plain.output) == (0, True)


def test_traces_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    with refused("file-unreadable", path=str(tmp_path)):
        list(read_traces(tmp_path))
