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
from tandem_plugin.evaluation import EvaluationError
from tandem_plugin.evaluation.benchmark import read_benchmark
from tandem_plugin.evaluation.checkpoint import Checkpoint
from tandem_plugin.evaluation.continuation import run as run_module
from tandem_plugin.evaluation.continuation.places import chosen_positions, continued_benchmark
from tandem_plugin.evaluation.continuation.result import (
    Continuation,
    Outcome,
    read_continuation,
    write_continuation,
)
from tandem_plugin.evaluation.continuation.run import run_continuation
from tandem_plugin.evaluation.continuation.tables import continuation_table, quarters
from tandem_plugin.evaluation.generated_runs import run_solo
from tandem_plugin.evaluation.generation import GenerationFile
from tandem_plugin.evaluation.results import solo_summary
from tandem_plugin.evaluation.sampling import Sampling
from tandem_plugin.rollouts.rollout_file import RolloutFile

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


def test_benchmarks_that_differ_are_resampled_each_by_itself():
    """All right in one benchmark and all wrong in the other: no resample of either moves a cell."""
    both = {
        "a": [Outcome(p, 0, 0, 0.9, 4) for p in range(12)],
        "b": [Outcome(p, 0, 0, 0.1, 0) for p in range(12)],
    }
    cells, mean, error = quarters(replace(made([]), outcomes=both), threshold=0.5, enough=0.5)
    assert (mean, error) == (0.5, 0)
    assert {key: (cell.share, cell.error) for key, cell in cells.items()} == {
        (True, True): (0.5, 0), (True, False): (0, 0),
        (False, True): (0, 0), (False, False): (0.5, 0),
    }  # fmt: skip


def test_errors_are_those_of_a_stratified_bootstrap():
    """Against resampling written out, where a benchmark's problems are drawn from it alone."""
    rng = np.random.default_rng(8)
    chances = {"easy": (25, 0.9, 0.3), "hard": (40, 0.15, 1.5), "odd": (7, 0.5, 0.8)}
    outcomes = {
        name: [
            Outcome(p, 0, at, float(rng.exponential(scale)), int(rng.binomial(4, right)))
            for p in range(problems) for at in range(1 + int(rng.integers(6)))
        ]
        for name, (problems, right, scale) in chances.items()
    }  # fmt: skip
    resamples = 10_000
    cells, mean, error = quarters(
        replace(made([]), outcomes=outcomes), threshold=0.6, enough=0.5, resamples=resamples
    )

    keys = [(True, True), (True, False), (False, True), (False, False)]
    number_of = {name: problems for name, (problems, _, _) in chances.items()}
    table = {name: np.zeros((problems, 6)) for name, problems in number_of.items()}
    for name, places in outcomes.items():
        for one in places:
            h = one.correct / 4
            cell = keys.index((one.divergence >= 0.6, h >= 0.5))
            table[name][one.problem] += [*np.eye(4)[cell], h, 1]
    whole = sum(t.sum(axis=0) for t in table.values())
    assert [cells[key].share for key in keys] + [mean] == pytest.approx(list(whole[:5] / whole[5]))
    draws = np.zeros((resamples, 6))
    for t in table.values():
        draws += t[rng.integers(0, len(t), (resamples, len(t)))].sum(axis=1)
    expected = (draws[:, :5] / draws[:, 5:]).std(axis=0, ddof=1)
    # A standard error of B resamples has the relative error 1 / sqrt(2 B), 0.7 %: four of both.
    found = [cells[key].error for key in keys] + [error]
    assert found == pytest.approx(list(expected), rel=4 / np.sqrt(resamples))


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
    outcomes = {**made(ROWS).outcomes, "single": [Outcome(0, 0, 0, 0.1, 4)]}
    table = continuation_table([replace(made([]), outcomes=outcomes)])
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
    from tandem_plugin.evaluation.continuation.divergence import divergence

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
    from tandem_plugin.evaluation.continuation.divergence import divergence_at
    from tandem_plugin.evaluation.reader import Reader

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
