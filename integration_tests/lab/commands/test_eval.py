"""``tandem eval`` as a user runs it: all axes, killed and gone on with, read again by others."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import ENGINE, TANDEM, run, stopped

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

SAMPLES = 4
SIZES = {"sums": 6, "more": 4}
SCHEDULES = ("step", "step-bernoulli", "step-text")
HANDOVER = 8
KILLS = 3

Command = Callable[..., list[str]]


@pytest.fixture(scope="module")
def command(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("benchmarks")
    for name, size in SIZES.items():
        rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(size)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def made(out: Path, *more: str) -> list[str]:
        return [
            *(*TANDEM, "eval", "all", "--out", str(out)),
            *("--senior", f"trained={checkpoints['senior']}"),
            *("--junior", f"base={checkpoints['junior']}"),
            *(p for name in SIZES for p in ("--benchmark", f"{name}={folder / name}.jsonl")),
            *("--n", str(SAMPLES), "--team-n", str(SAMPLES), "--max-tokens", "60"),
            *(part for name in SCHEDULES for part in ("--schedule", name)),
            *("--handover", str(HANDOVER), "--frequent", "2"),
            *ENGINE,
            *more,
        ]

    return made


def written(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.rglob("*.jsonl"))


def rows(out: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Every line of every file; none may be there twice."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for file in sorted(out.rglob("*.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            key = str(file.relative_to(out)), row["problem"], row["sample"]
            assert key not in found
            found[key] = row
    return found


def summary(out: Path, *place: str) -> dict[str, Any]:
    return json.loads(Path(out, *place, "summary.json").read_text())


@pytest.fixture(scope="module")
def whole(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "results"
    found = json.loads(run(command(out, "--json")).stdout)
    assert [(one["kind"], one["senior"]) for one in found["runs"]] == [
        ("solo", "base"),
        ("solo", "trained"),
        *[("handoff", "trained")] * (len(SCHEDULES) + 2),
        ("legibility", "trained"),
        ("handover-kl", "trained"),
        ("drift", "trained"),
    ]
    return out


def test_team_alternates_at_steps_and_every_response_replays(whole: Path):
    handoffs = 0
    for schedule in SCHEDULES:
        folder = whole / "trained" / "handoff" / schedule / "base"
        for name in SIZES:
            done = run([*TANDEM, "replay", f"{folder / name}.jsonl", "--json"])
            assert json.loads(done.stdout)["differing_rows"] == 0
        if schedule == "step":
            for row in (json.loads(x) for x in (folder / "sums.jsonl").read_text().splitlines()):
                assert row["authorship"][0] == 1
                handoffs += sum(
                    a != b for a, b in zip(row["authorship"], row["authorship"][1:], strict=False)
                )
    assert handoffs > 0
    share = summary(whole, "trained", "handoff", "step", "base")["metrics"]["sums"]["senior_share"]
    assert 0.3 < share["mean"] <= 1
    assert share["standard_deviation"] > 0


def test_one_model_finishes_what_the_other_began(whole: Path):
    for first, named in (("senior", "first=senior,"), ("junior", "")):
        place = "trained", "handoff", f"handover,{named}after={HANDOVER}", "base"
        lines = Path(whole, *place, "sums.jsonl").read_text().splitlines()
        authors = [json.loads(line)["authorship"] for line in lines]
        began, finished = (1, 0) if first == "senior" else (0, 1)
        assert any(len(row) > HANDOVER for row in authors)
        for row in authors:
            assert row == ([began] * HANDOVER + [finished] * len(row))[: len(row)]


def test_scores_are_those_of_whole_distributions_in_float64(
    whole: Path, checkpoints: dict[str, Path]
):
    from transformers import AutoModelForCausalLM

    models = [
        AutoModelForCausalLM.from_pretrained(checkpoints[name], dtype=torch.float32).eval()
        for name in ("senior", "junior")
    ]
    found = rows(whole)
    for key, score in found.items():
        if "legibility" not in key[0] or key[2]:
            continue
        name = Path(key[0]).name.removesuffix(".scores.jsonl")
        row = found[f"trained/solo/{name}.jsonl", key[1], key[2]]
        ids = torch.tensor([row["prompt_ids"] + row["response_ids"]])
        length = len(row["response_ids"])
        with torch.inference_mode():
            p, q = (
                torch.softmax(model(ids).logits[0, -length - 1 : -1].double(), -1)
                for model in models
            )
        nats = -q[torch.arange(length), ids[0, -length:]].log()
        assert score["tokens"] == length
        assert abs(score["cross_entropy"] - float(nats.sum())) / length < 1e-5
        assert abs(score["overlap"] - float(torch.minimum(p, q).sum())) / length < 1e-5


def test_divergence_at_a_handover_is_that_of_whole_distributions(
    whole: Path, checkpoints: dict[str, Path]
) -> None:
    from transformers import AutoModelForCausalLM

    senior, junior = (
        AutoModelForCausalLM.from_pretrained(checkpoints[name], dtype=torch.float32).eval()
        for name in ("senior", "junior")
    )
    written, handed_over = rows(whole), 0
    schedule = f"handover,first=senior,after={HANDOVER}"
    for (file, problem, sample), score in written.items():
        if not file.startswith("trained/handover-kl/"):
            continue
        name = Path(file).name.removesuffix(".scores.jsonl")
        row = written[f"trained/handoff/{schedule}/base/{name}.jsonl", problem, sample]
        if len(row["response_ids"]) <= HANDOVER:
            assert score["kl"] is None
            continue
        handed_over += 1
        ids = torch.tensor([row["prompt_ids"] + row["response_ids"][:HANDOVER]])
        with torch.inference_mode():
            p, q = (torch.softmax(m(ids).logits[0, -1].double(), -1) for m in (senior, junior))
        assert score["kl"] == pytest.approx(float((p * (p / q).log()).sum()), abs=1e-5)
    assert handed_over


def test_tables_and_report_are_made_of_it(whole: Path, tmp_path: Path):
    done = run([*TANDEM, "compare", str(whole / "base"), str(whole / "trained")])
    assert "Solo reasoning capability" in done.stdout
    run([*TANDEM, "report", str(whole), "--out", str(tmp_path)])
    assert (tmp_path / "index.html").exists()
    assert len(list((tmp_path / "figures").glob("*.png"))) == 3


@pytest.mark.timeout(5000)
def test_killed_three_times_it_ends_with_the_same_result(
    command: Command, whole: Path, tmp_path: Path
):
    out = tmp_path / "results"
    out.mkdir()
    whole_lines = SAMPLES * sum(SIZES.values()) * 12
    moments = random.Random(11)
    targets = sorted(moments.sample(range(3, whole_lines - 3), KILLS))
    for target in targets:
        before = {file: file.read_bytes() for file in out.rglob("*.jsonl")}
        stderr, delay = tmp_path / "stderr", moments.uniform(0, 0.3)
        there = partial(lambda at: written(out) >= at, target)
        code = stopped(command(out), stderr, there, signal.SIGKILL, delay=delay)
        assert code == -signal.SIGKILL, stderr.read_text()[-3000:]
        for file, content in before.items():  # nothing that was whole is lost or changed
            assert file.read_bytes().startswith(content[: content.rfind(b"\n") + 1])
    run(command(out))
    assert rows(out) == rows(whole)
    for path in sorted(out.rglob("summary.json")):
        assert json.loads(path.read_text()) == json.loads(
            (whole / path.relative_to(out)).read_text()
        )


def test_finished_run_starts_no_engine_and_other_settings_are_refused(
    command: Command, whole: Path
):
    environment = os.environ | {"VLLM_TARGET_DEVICE": "no engine must start"}
    done = subprocess.run(
        command(whole), capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused = subprocess.run(
        command(whole, "--temperature", "0.5"), capture_output=True, text=True, timeout=300
    )
    assert refused.returncode == 1
    assert "[rollout-settings-changed]" in refused.stderr
