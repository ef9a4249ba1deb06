"""Files of results, and runs that read those of others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from made_pictures import picture, stored
from made_results import write_run
from refused import refused

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.lab.data import PromptTemplate, prepare, read_problems
from tandem_plugin.lab.evaluation.drift import run_drift
from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.lab.evaluation.inputs import (
    Checkpoint,
    find_checkpoint,
    fingerprint_folder,
    read_benchmark,
)
from tandem_plugin.lab.evaluation.legibility import SCORES, _noted, run_legibility
from tandem_plugin.lab.evaluation.measures import headline
from tandem_plugin.lab.evaluation.results import read_summary, solo_summary, versions
from tandem_plugin.lab.evaluation.run import Evaluation, evaluate
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile


def test_every_response_has_seeds_of_its_own_that_follow_from_its_place():
    sampling = Sampling(4, seed=7)
    places = [(b, i, j) for b in ("a", "b") for i in range(5) for j in range(4)]
    seeds = [seed for place in places for seed in sampling.seeds(*place)]
    assert len(set(seeds)) == 2 * len(places)
    assert Sampling(8, temperature=1, seed=7).seeds("a", 1, 2) == sampling.seeds("a", 1, 2)
    assert Sampling(4, seed=8).seeds("a", 1, 2) != sampling.seeds("a", 1, 2)


def write_problems(path: Path, answers: list[int]) -> Path:
    rows = [{"problem": f"What is {a}?", "answer": a} for a in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_benchmark_has_its_own_name_and_asks_for_a_box(tmp_path: Path):
    file = write_problems(tmp_path / "sums.jsonl", [1, 2])
    assert read_benchmark(str(file)).name == "sums"
    named = read_benchmark(f"AIME={file}")
    assert named.name == "AIME"
    question, _ = named.questions()
    assert question["golds"] == ["1"]
    assert "\\boxed{}" in question["messages"][0]["content"]
    assert named.settings()["problems"] == 2
    other = read_benchmark(str(write_problems(tmp_path / "other.jsonl", [1, 3])))
    assert other.settings()["sha256"] != named.settings()["sha256"]


def test_a_benchmarks_pixels_are_part_of_it_and_some_parts_read_texts_alone(tmp_path: Path):
    file = write_problems(tmp_path / "sums.jsonl", [1, 2])
    text = read_benchmark(str(file))
    assert "images" not in text.settings() | text.questions()[0]
    rows = [{"problem": f"What is {a}?", "answer": a, "image": "a.png"} for a in (1, 2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    digests = set()
    for size in (8, 9):
        (tmp_path / "a.png").write_bytes(stored(picture(size=(size, 8))))
        benchmark = read_benchmark(str(file))
        digests.add(benchmark.settings()["sha256"])
        assert benchmark.settings()["images"] == 2
        assert [len(question["images"]) for question in benchmark.questions()] == [1, 1]
    assert len(digests | {text.settings()["sha256"]}) == 3
    schedules = [{"schedule": "step"}, {"schedule": "step-text"}]
    asked = Evaluation(tmp_path, ["s"], ["j"], benchmarks=[text, benchmark], schedules=schedules)
    with refused("text-handoff-with-images", name="sums"):
        evaluate(asked, ["handoff"])
    with refused("legibility-with-images", name="sums"):
        evaluate(asked, ["solo", "legibility"])
    assert {path.name for path in tmp_path.iterdir()} == {"sums.jsonl", "a.png"}


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
def test_a_prepared_file_is_asked_as_it_was_prepared(
    tmp_path: Path, trainer: Literal["verl", "openrlhf"]
):
    template = PromptTemplate("{problem} {instruction} ", "Say it.", system="Be brief.")
    problems = read_problems(write_problems(tmp_path / "sums.jsonl", [1, 2]))
    file = prepare(problems, trainer, tmp_path / "data", template=template).files["train"]
    asked = [question["messages"] for question in read_benchmark(str(file)).questions()]
    assert asked == [template.messages(problem) for problem in problems.problems]
    (tmp_path / "data" / "manifest.json").unlink()  # now it is a file of anyone's
    assert "boxed" in read_benchmark(str(file)).questions()[0]["messages"][-1]["content"]


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 200])
def test_name_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str):
    file = write_problems(tmp_path / "sums.jsonl", [1])
    with refused("evaluation-name-invalid", of="benchmark"):
        read_benchmark(f"{name}={file}")


def write_checkpoint(folder: Path, weights: bytes = b"w") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_fingerprint_is_of_what_a_model_is_and_not_of_where_it_lies(tmp_path: Path):
    one = write_checkpoint(tmp_path / "one")
    same = write_checkpoint(tmp_path / "same")
    other = write_checkpoint(tmp_path / "other", b"W")
    (same / "README.md").write_text("not a part of it")
    assert fingerprint_folder(one) == fingerprint_folder(same) != fingerprint_folder(other)
    (same / "tokenizer.json").write_text("{}")
    assert fingerprint_folder(one) != fingerprint_folder(same)
    assert find_checkpoint(f"base={one}").name == "base"
    assert find_checkpoint(str(one)).name == "one"


def test_folder_without_a_model_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with refused("evaluation-not-checkpoint"):
        find_checkpoint(f"x={tmp_path}")


def test_summary_is_read_as_written(tmp_path: Path):
    rows = [{"problem": 0, "samples": 2, "correct": 1}]
    settings = {"schedule": {"schedule": "step"}}
    place = tmp_path, "handoff", "s", "j", "step"
    folder = write_run(*place, settings=settings, benchmarks={"a": rows})
    assert folder == tmp_path / "s/handoff/step/j"
    found = read_summary(folder / "summary.json")
    assert (found.senior, found.junior, found.label) == ("s", "j", "handoff step j")
    assert found.problems == {"a": rows}
    assert found.content["versions"] == versions()


def test_summary_with_half_a_surrogate_pair_is_refused(tmp_path: Path):
    path = tmp_path / "summary.json"
    path.write_text('{"kind": "solo", "senior": {"name": "\\ud800"}}')
    with refused("result-unreadable"):
        read_summary(path)


@pytest.mark.parametrize("name", ["../x", "a\\b", "", "a\nb"])
def test_summary_whose_names_lead_elsewhere_is_refused(tmp_path: Path, name: str):
    rows = [{"problem": 0, "samples": 2, "correct": 1}]
    folder = write_run(tmp_path, "solo", "s", settings={}, benchmarks={name: rows})
    with refused("summary-field-invalid"):
        read_summary(folder / "summary.json")


MakeResults = Callable[..., Path]
SENIOR, JUNIOR = Checkpoint("s", "", "00"), Checkpoint("base", "", "11")


@pytest.fixture
def solo(make_results: MakeResults) -> Path:
    out = make_results("s", [0, 1], kinds=("solo",))
    path = out / "s/solo/summary.json"
    content = json.loads(path.read_text())
    content["settings"]["benchmarks"] = {"sums": {"prompt_ids": "00"}}
    path.write_text(json.dumps(content))
    return out


def test_model_without_a_solo_run_is_refused(tmp_path: Path):
    with refused("solo-run-missing", name="x"):
        solo_summary(tmp_path, "x")


def test_reading_other_weights_than_those_that_wrote_is_refused(solo: Path):
    with refused("solo-run-other-model", fingerprint="ff"):
        run_legibility(solo, Checkpoint("s", "", "ff"), [JUNIOR])


def test_responses_to_images_are_not_read(solo: Path):
    file = solo / "s/solo/summary.json"
    content = json.loads(file.read_text())
    content["settings"]["benchmarks"]["sums"]["images"] = 2
    file.write_text(json.dumps(content))
    with refused("legibility-with-images", name="sums"):
        run_legibility(solo, SENIOR, [JUNIOR])


@pytest.mark.parametrize("samples", [0, 5])
def test_reading_more_samples_than_there_are_is_refused(solo: Path, samples: int):
    with refused("solo-run-samples-differ", used=samples):
        run_legibility(solo, SENIOR, [JUNIOR], samples=samples)


def test_finished_scores_are_pooled_by_problem_without_reading_again(
    solo: Path, monkeypatch: pytest.MonkeyPatch
):
    """Scores of two samples: tokens of all of a problem's responses count alike. Without PyTorch,
    which the environment of another grader does not have."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tandem_plugin.lab.evaluation.scoring", raising=False)
    summary = solo_summary(solo, "s")
    settings = {"junior": "11", "dtype": "auto"}
    file = solo / "s/legibility/base/sums.scores.jsonl"
    sums = {(1, 0): (10, 1.0, 9.0), (0, 1): (1, 2.0, 0.5), (0, 0): (3, 2.0, 2.5), (1, 1): (0, 0, 0)}
    with RolloutFile(file, _noted("sums", summary, SENIOR, settings)) as written:
        for (problem, sample), (tokens, nats, overlap) in sums.items():
            row = {"tokens": tokens, "cross_entropy": nats, "overlap": overlap}
            row |= {"entropy": 0.5 * nats, "kl": 0.25 * nats}
            written.append(problem, sample, row)
    (path,) = run_legibility(solo, SENIOR, [JUNIOR], samples=2)
    assert read_summary(path).problems["sums"] == [
        {
            "problem": 0,
            "tokens": 4,
            "cross_entropy": 1.0,
            "overlap": 0.75,
            "entropy": 0.5,
            "kl": 0.25,
            "responses": 2,
            "response_entropy": pytest.approx((2 / 3 + 2) / 4),
            "response_kl": pytest.approx((2 / 3 + 2) / 8),
            "response_cross_entropy": pytest.approx((2 / 3 + 2) / 2),
            "response_overlap": pytest.approx((2.5 / 3 + 0.5) / 2),
        },
        {
            "problem": 1,
            "tokens": 10,
            "cross_entropy": 0.1,
            "overlap": 0.9,
            "entropy": 0.05,
            "kl": 0.025,
            "responses": 1,
            "response_entropy": 0.05,
            "response_kl": 0.025,
            "response_cross_entropy": 0.1,
            "response_overlap": 0.9,
        },
    ]


def test_drift_between_runs_of_other_settings_is_refused(make_results: MakeResults):
    make_results("s", [0, 1], kinds=("solo",))
    out = make_results("base", [0, 1], kinds=("solo",))
    path = out / "base/solo/summary.json"
    path.write_text(path.read_text().replace('"top_p": 0.95', '"top_p": 1.0'))
    with refused("compare-settings-differ", name="sampling.top_p"):
        run_drift(out, "s", "base")


def test_failures_of_the_grader_are_shown_beside_the_headline(tmp_path: Path):
    rows = [{"problem": 0, "samples": 4, "correct": 1}]
    kinds = {"correct": 1, "incorrect": 1, "no_answer": 2}
    for name, outcomes in (("a", kinds), ("b", kinds | {"no_answer": 1, "error": 1})):
        metrics = {"A": {"outcomes": outcomes}}
        write_run(tmp_path, "solo", name, settings={}, benchmarks={"A": rows}, metrics=metrics)
    whole, some = (headline(read_summary(tmp_path / name / "solo/summary.json")) for name in "ab")
    assert whole["pass@1"] == 25
    assert some == whole | {"grading_errors": 1}


def test_headline_is_named_as_in_the_summary(make_results: MakeResults):
    out = make_results("s", [0, 1])
    kinds = "solo", "legibility/base"
    solo, legibility = (headline(read_summary(out / f"s/{one}/summary.json")) for one in kinds)
    assert [name for name in solo if not name.startswith("pass@")] == []
    assert {"cross_entropy", "overlap"} <= set(legibility) <= {*SCORES}
    rows = [{"problem": 0, "samples": 1, "correct": 1, "correct_by": {"release": 0}}]
    write_run(out, "solo", "both", settings={}, benchmarks={"A": rows})
    both = headline(read_summary(out / "both/solo/summary.json"))
    assert both == {"pass@1": 100, "pass@1_release": 0}


def test_models_of_other_vocabularies_are_neither_read_nor_compared(
    make_results: MakeResults, monkeypatch: pytest.MonkeyPatch
):
    make_results("s", [0, 1], kinds=("solo",))
    out = make_results("base", [0, 1], kinds=("solo",))
    read = (SimpleNamespace(pieces=(one,), texts=lambda: [b"one"]) for one in "abab")
    monkeypatch.setattr(Vocabulary, "from_path", lambda path: next(read))
    with refused("token-counts-vocabularies-differ", senior="s", junior="base"):
        run_drift(out, "s", "base")
    path = out / "s/solo/summary.json"
    content = json.loads(path.read_text())
    content["settings"]["benchmarks"] = {"sums": {"prompt_ids": "00"}}
    path.write_text(json.dumps(content))
    with refused("evaluation-vocabularies-differ", senior="s", junior="base"):
        run_legibility(out, SENIOR, [JUNIOR])


def test_a_problem_of_empty_responses_has_no_score(solo: Path):
    file = solo / "s/legibility/base/sums.scores.jsonl"
    settings = {"junior": "11", "dtype": "auto"}
    with RolloutFile(file, _noted("sums", solo_summary(solo, "s"), SENIOR, settings)) as written:
        for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
            row = dict.fromkeys(("cross_entropy", "overlap", "entropy", "kl"), 0.0)
            written.append(*place, {"tokens": place[0], **row})
    with refused("problem-responses-empty", problem=0, name="sums"):
        run_legibility(solo, SENIOR, [JUNIOR], samples=2)
