from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_results import write_run
from refused import refused

from tandem_plugin.lab.evaluation.benchmark import read_benchmark
from tandem_plugin.lab.evaluation.checkpoint import (
    find_checkpoint,
    fingerprint_folder,
)
from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.lab.evaluation.results import read_summary, versions


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


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 200])
def test_name_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str):
    file = write_problems(tmp_path / "sums.jsonl", [1])
    with refused("TP822", of="benchmark"):
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
    with refused("TP826"):
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
    with refused("TP887"):
        read_summary(path)


@pytest.mark.parametrize("name", ["../x", "a\\b", "", "a\nb"])
def test_summary_whose_names_lead_elsewhere_is_refused(tmp_path: Path, name: str):
    rows = [{"problem": 0, "samples": 2, "correct": 1}]
    folder = write_run(tmp_path, "solo", "s", settings={}, benchmarks={name: rows})
    with refused("TP891"):
        read_summary(folder / "summary.json")
