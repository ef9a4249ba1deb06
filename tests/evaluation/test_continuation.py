"""Places of a senior's responses, what the junior makes of them, and the two-by-two table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin import BoundarySet
from tandem_plugin.lab.evaluation import EvaluationError
from tandem_plugin.lab.evaluation.benchmark import read_benchmark
from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
from tandem_plugin.lab.evaluation.continuation import run as run_module
from tandem_plugin.lab.evaluation.continuation.places import chosen_positions, continued_benchmark
from tandem_plugin.lab.evaluation.continuation.result import (
    Continuation,
    Outcome,
    read_continuation,
    write_continuation,
)
from tandem_plugin.lab.evaluation.continuation.run import run_continuation
from tandem_plugin.lab.evaluation.continuation.tables import continuation_table, quarters
from tandem_plugin.lab.evaluation.generated_runs import run_solo
from tandem_plugin.lab.evaluation.generation import GenerationFile
from tandem_plugin.lab.evaluation.results import solo_summary
from tandem_plugin.lab.evaluation.sampling import Sampling
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

LINES = BoundarySet("newline", np.arange(10) == 7)
SENIOR, JUNIOR = Checkpoint("s", "/models/s", "aa"), Checkpoint("j", "/models/j", "bb")
SAMPLING = Sampling(2, max_tokens=20)


@given(st.lists(st.sampled_from([3, 7]), max_size=30), st.integers(1, 8), st.integers(1, 30))
def test_places_are_behind_boundaries_with_something_left_to_write(
    ids: list[int], most: int, longest: int
):
    every = [t + 1 for t, token in enumerate(ids) if token == 7 and t + 1 < min(len(ids), longest)]
    found = chosen_positions(ids, LINES, most, longest)
    assert len(found) == min(most, len(every)) == len(set(found))
    assert set(found) <= set(every)
    assert found == sorted(found)
    if len(every) > 1 < most:
        assert (found[0], found[-1]) == (every[0], every[-1])


def results(tmp_path: Path) -> Path:
    """A solo run of the senior: two problems, two responses of three lines each."""
    file = tmp_path / "sums.jsonl"
    rows = [{"problem": f"What is {i} + 1?", "answer": i + 1} for i in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark, out = read_benchmark(str(file)), tmp_path / "out"
    written = GenerationFile(out / "s/solo", benchmark, SENIOR, None, None)
    with RolloutFile(written.path, written.settings(SAMPLING, {})) as responses:
        for problem, sample in ((1, 0), (0, 0), (0, 1), (1, 1)):
            question = benchmark.questions()[problem]
            row = {
                "prompt": question["messages"], "answer": question["golds"],
                "response": "a\nb\nSo \\boxed{1}.", "finish_reason": "stop",
                "prompt_ids": [1, problem], "response_ids": [3, 7, 4, 7, 5], "tandem_seed": None,
            }  # fmt: skip
            responses.append(problem, sample, row)
    run_solo(out, SENIOR, [benchmark], SAMPLING, {})
    return out


def test_engine_is_asked_to_go_on_with_token_ids_up_to_the_same_length(tmp_path: Path):
    pytest.importorskip("sympy")
    solo = solo_summary(results(tmp_path), "s", "aa")
    asked = continued_benchmark(solo, "sums", LINES, 1, 8)
    assert [(p.problem, p.sample, p.position) for p in asked.problems] == [
        (0, 0, 2), (0, 0, 4), (1, 0, 2), (1, 0, 4),
    ]  # fmt: skip
    question = asked.questions()[3]
    assert (question["prompt_ids"], question["begun"]) == ([1, 1], [3, 7, 4, 7])
    assert (question["max_tokens"], question["golds"]) == (16, ["2"])
    other = continued_benchmark(solo, "sums", LINES, 1, 1)
    assert asked.settings()["sha256"] != other.settings()["sha256"]
    with pytest.raises(EvaluationError, match="fingerprint aa, and the one given has cc"):
        solo_summary(tmp_path / "out", "s", "cc")


def test_run_counts_what_comes_out_right_at_each_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("sympy")
    out = results(tmp_path)

    def generated(files: Any, sampling: Sampling, engine: Any) -> None:
        (file,) = files
        assert (sampling.samples, sampling.temperature, sampling.seed) == (3, 0.6, 5)
        with RolloutFile(file.path, file.settings(sampling, engine)) as written:
            for place, question in enumerate(file.benchmark.questions()):
                for sample in range(3):
                    # From place k, k of three continuations are right.
                    box = question["golds"][0] if sample < place else "-9"
                    row = {
                        "prompt": question["messages"], "answer": question["golds"],
                        "response": f"\\boxed{{{box}}}", "finish_reason": "stop",
                        "prompt_ids": question["prompt_ids"] + question["begun"],
                        "response_ids": [5], "tandem_seed": None,
                    }  # fmt: skip
                    written.append(place, sample, row)

    monkeypatch.setattr(run_module, "generate", generated)
    monkeypatch.setattr(run_module, "check_same_vocabulary", lambda *models: None)
    monkeypatch.setattr(run_module.Vocabulary, "from_path", lambda path: None)
    monkeypatch.setattr(run_module, "resolve_boundaries", lambda name, vocabulary: LINES)
    monkeypatch.setattr(
        run_module,
        "_divergences",
        lambda benchmark, *rest: [0.1 * p.position for p in benchmark.problems],
    )
    path = run_continuation(
        out, SENIOR, JUNIOR, continuations=3, places=8, samples=1, boundaries="newline", seed=5,
        engine={},
    )  # fmt: skip
    assert path == out / "s/continuation/j/continuation.json"
    found = read_continuation(path)
    assert found.outcomes["sums"] == [
        Outcome(0, 0, 2, 0.2, 0), Outcome(0, 0, 4, 0.4, 1),
        Outcome(1, 0, 2, 0.2, 2), Outcome(1, 0, 4, 0.4, 3),
    ]  # fmt: skip
    with pytest.raises(EvaluationError, match="samples=3: the solo run of 's' has 2"):
        run_continuation(
            out, SENIOR, JUNIOR, continuations=3, places=8, samples=3, boundaries="newline",
            seed=5, engine={},
        )  # fmt: skip


def made(rows: list[tuple[int, float, int]], senior: str = "s", **settings: Any) -> Continuation:
    """rows: problem, divergence, right ones of four."""
    outcomes = [Outcome(p, 0, i, kl, right) for i, (p, kl, right) in enumerate(rows)]
    return Continuation(senior, "j", 4, settings, {"sums": outcomes})


ROWS = [(0, 0.1, 4), (0, 0.9, 0), (0, 0.2, 1), (1, 0.8, 2), (1, 0.1, 3), (2, 0.1, 0)]


def test_quarters_count_places_and_average_over_them():
    cells, mean, error = quarters(made(ROWS), threshold=0.5, enough=0.5)
    counts = {key: cell.places for key, cell in cells.items()}
    assert counts == {(True, True): 1, (True, False): 1, (False, True): 2, (False, False): 2}
    assert cells[False, True].share == pytest.approx(2 / 6)
    assert mean == pytest.approx(10 / 24)
    assert error > 0
    edge, _, _ = quarters(made([(0, 0.5, 2), (1, 0.5, 1)]), threshold=0.5, enough=0.5)
    assert edge[True, True].places == edge[True, False].places == 1


def test_errors_are_those_of_resampled_problems():
    """Against resampling written out: problems are drawn, with all of their places."""
    rng = np.random.default_rng(3)
    rows = [
        (p, float(rng.exponential()), int(rng.binomial(4, 0.2 + 0.6 * (p % 2))))
        for p in range(40) for _ in range(1 + p % 5)
    ]  # fmt: skip
    cells, _, error = quarters(made(rows), threshold=0.7, enough=0.5, resamples=4000)
    places = {p: [(kl, right / 4) for q, kl, right in rows if q == p] for p in range(40)}
    means, shares = [], []
    for _ in range(4000):
        drawn = [place for p in rng.integers(0, 40, 40) for place in places[int(p)]]
        means.append(np.mean([h for _, h in drawn]))
        shares.append(np.mean([kl >= 0.7 and h < 0.5 for kl, h in drawn]))
    assert error == pytest.approx(np.std(means, ddof=1), rel=0.06)
    assert cells[True, False].error == pytest.approx(np.std(shares, ddof=1), rel=0.06)


def test_problems_are_resampled_within_each_benchmark():
    """Whichever problems are drawn, half of these places come out right."""
    outcomes = {
        name: [Outcome(p, 0, 0, 1.0, right) for p in range(12)]
        for name, right in (("easy", 4), ("hard", 0))
    }
    found = Continuation("s", "j", 4, {}, outcomes)
    cells, mean, error = quarters(found, threshold=0.5, enough=0.5)
    assert (mean, error) == (0.5, 0.0)
    assert [cell.error for cell in cells.values()] == [0.0] * 4


def test_errors_of_unlike_benchmarks_are_those_of_a_stratified_resampling():
    rng = np.random.default_rng(5)
    rows = {
        name: [
            (p, float(rng.exponential()), int(rng.binomial(4, easy)))
            for p in range(size) for _ in range(1 + p % 4)
        ]
        for name, size, easy in (("easy", 30, 0.8), ("hard", 18, 0.2))
    }  # fmt: skip
    outcomes = {
        name: [Outcome(p, 0, i, kl, right) for i, (p, kl, right) in enumerate(listed)]
        for name, listed in rows.items()
    }
    cells, _, error = quarters(Continuation("s", "j", 4, {}, outcomes), 0.7, 0.5, resamples=4000)
    means: list[float] = []
    shares: list[list[bool]] = []
    for _ in range(4000):
        drawn: list[tuple[float, float]] = []
        for listed in rows.values():
            problems = 1 + max(p for p, _, _ in listed)
            for p in rng.integers(0, problems, problems):
                drawn += [(kl, right / 4) for q, kl, right in listed if q == p]
        means.append(np.mean([h for _, h in drawn]))
        shares.append([
            np.mean([(kl >= 0.7, h >= 0.5) == key for kl, h in drawn]) for key in cells
        ])  # fmt: skip
    # Of 4,000 resamples an estimated deviation is within 6% (5 standard errors of it).
    assert error == pytest.approx(np.std(means, ddof=1), rel=0.06)
    for cell, column in zip(cells.values(), np.array(shares).T, strict=True):
        assert cell.error == pytest.approx(np.std(column, ddof=1), rel=0.06)


def test_table_has_one_divergence_for_all_seniors():
    apart = [(p, kl + 1, right) for p, kl, right in ROWS]
    table = continuation_table([made(ROWS, "grpo"), made(apart, "trl")])
    assert [row[0].text for row in table.rows] == ["grpo", "trl"]
    # The median of both together lies between them: all of one's places are high, of the other low.
    assert [row[3].text for row in table.rows] == ["0.0 (0)", "50.0 (3)"]
    assert [row[6].text for row in table.rows] == ["50.0 (3)", "0.0 (0)"]
    assert "high from 1 on" in table.note
    fixed = continuation_table([made(ROWS)], threshold=0.5)
    assert fixed.rows[0][3].text == "16.7 (1)"
    with pytest.raises(EvaluationError, match=r"with other settings \(places\)"):
        continuation_table([made(ROWS, places=1), made(ROWS, "t", places=2)])
    with pytest.raises(EvaluationError, match="no places"):
        continuation_table([made([])])


def test_one_problem_has_no_error():
    table = continuation_table([made(ROWS[:3])])
    assert table.rows[0][2].error == "–"


def test_result_is_read_as_it_was_written_and_nothing_else_is(tmp_path: Path):
    path = write_continuation(tmp_path, SENIOR.settings(), JUNIOR.settings(), made(ROWS, seed=1))
    assert read_continuation(path) == made(ROWS, seed=1)
    whole = json.loads(path.read_text())
    for spoiled in (
        whole | {"format": 2},
        whole | {"continuations": 0},
        whole | {"places": {"sums": [[0, 0, 2, 0.1, 5]]}},
        whole | {"places": {"sums": [[0, 0, 2, -0.1, 1]]}},
        whole | {"places": {"sums": [[0, 0, 2.5, 0.1, 1]]}},
        {k: v for k, v in whole.items() if k != "settings"},
        [],
    ):
        path.write_text(json.dumps(spoiled))
        with pytest.raises(EvaluationError, match="run `tandem eval continuation` again"):
            read_continuation(path)


def test_divergence_is_scipys():
    torch = pytest.importorskip("torch")
    scipy_stats = pytest.importorskip("scipy.stats")
    from tandem_plugin.lab.evaluation.continuation.divergence import divergence

    rng = np.random.default_rng(1)
    senior, junior = rng.normal(0, 3, (6, 11)), rng.normal(0, 3, (6, 9))
    found = divergence(torch.tensor(senior), torch.tensor(junior)).tolist()
    p, q = (np.exp(logits[:, :9]) for logits in (senior, junior))
    expected = [float(scipy_stats.entropy(*pair)) for pair in zip(p, q, strict=True)]
    assert found == pytest.approx(expected, rel=1e-12)
    same = torch.tensor(senior, dtype=torch.float32)
    assert divergence(same, same).max() < 1e-12
    with pytest.raises(EvaluationError, match="not of the same positions"):
        divergence(torch.zeros(2, 3), torch.zeros(3, 3))


def test_divergence_is_that_of_a_forward_pass_over_the_prefix(tmp_path: Path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tandem_plugin.lab.evaluation.continuation.divergence import divergence_at
    from tandem_plugin.lab.evaluation.reader import Reader

    readers, models = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        config = transformers.Qwen3Config(
            vocab_size=24, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=64,
            initializer_range=0.3,
        )  # fmt: skip
        model = transformers.Qwen3ForCausalLM(config).float().eval()
        model.save_pretrained(tmp_path / str(seed))
        models.append(model)
        readers.append(Reader(replace(SENIOR, path=str(tmp_path / str(seed))), "float32", "cpu"))
    prompt, response = [1, 2, 3], [4, 7, 6, 7, 9, 7, 3]
    found = divergence_at(readers[0], readers[1], prompt, response, [2, 4, 6])
    for position, value in zip([2, 4, 6], found, strict=True):
        ids = torch.tensor([[*prompt, *response[:position]]])
        with torch.no_grad():
            ours, theirs = (model(ids).logits[0, -1].double().log_softmax(-1) for model in models)
        assert value == pytest.approx(float((ours.exp() * (ours - theirs)).sum()), rel=1e-4)
