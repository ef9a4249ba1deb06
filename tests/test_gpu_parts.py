"""What make test-gpu and make bench-gpu do around a GPU; without a GPU and without an engine."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [ROOT / "benchmarks" / "gpu.py", ROOT / "integration_tests" / "gpu_checks.py"]

PROGRAM = """
import sys, time
from pathlib import Path

sys.path[:0] = [{benchmarks!r}]
import machine
import parts
from table import Table

def counts(results, toy):
    for number in range(2):
        if str(number) not in results:
            results.add(str(number), {{"toy": toy}})
            print("measured", number)

def fails(results, toy):
    results.add("right", {{"passed": True}})
    results.add("wrong", {{"passed": False}})
    results.add("not shown", {{"passed": None}})

def breaks(results, toy):
    raise RuntimeError("the device is on fire")

def lasts(results, toy):
    results.add("first", {{}})
    time.sleep(600)

def table(content):
    return Table("Cases", ["case"], [[name] for name in content["cases"]], "counts")

PARTS = [parts.Part(f.__name__, "p", f, table) for f in (counts, fails, breaks, lasts)]
parts.refusal = lambda toy: None
machine._accelerator = lambda: "a GPU"
sys.exit(parts.main(Path(__file__), "test", PARTS, Path({page!r})))
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    for folder in ("integration_tests", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the program's parts; returns what it said, its exit status, and its folder."""
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    script = tmp_path / "program.py"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- gpu: begin -->\nold\n<!-- gpu: end -->\nafter\n")
    script.write_text(PROGRAM.format(benchmarks=str(ROOT / "benchmarks"), page=str(page)))
    out = tmp_path / "out"

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, str(script), "--out", str(out), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return SimpleNamespace(status=done.returncode, said=done.stdout + done.stderr, page=page)

    run.out = out  # type: ignore[attr-defined]
    return run


def test_a_part_leaves_results_log_tables_and_how_it_ended(command: Any) -> None:
    done = command("--part", "counts")
    assert done.status == 0, done.said
    cases = json.loads((command.out / "counts.json").read_text())["cases"]
    assert list(cases) == ["0", "1"]
    assert "measured 1" in (command.out / "counts.log").read_text()
    outcome = json.loads((command.out / "parts.json").read_text())["counts"]
    assert outcome["passed"]
    assert outcome["sentence"].endswith("2 cases")
    text = (command.out / "tables.md").read_text()
    assert "--part counts`" in text
    assert "| 1 |" in text
    assert re.search(r"\d s  1\n", done.said)


def test_a_part_that_is_started_again_measures_nothing_twice(command: Any) -> None:
    command("--part", "counts")
    command("--part", "counts")
    assert "measured" not in (command.out / "counts.log").read_text()
    assert len(json.loads((command.out / "counts.json").read_text())["cases"]) == 2


def test_failed_checks_and_broken_parts_are_told_and_the_others_run(command: Any) -> None:
    done = command("--part", "fails", "--part", "breaks", "--part", "counts")
    assert done.status == 1
    assert re.search(r"fails: 3 cases in \d+ s; failed: wrong\n", done.said)
    assert "RuntimeError: the device is on fire" in done.said
    assert "counts: done in" in done.said


def test_a_part_that_takes_too_long_is_stopped_and_keeps_its_cases(command: Any) -> None:
    start = time.monotonic()
    done = command("--part", "lasts", "--limit", "4")
    assert time.monotonic() - start < 60
    assert done.status == 1
    assert "stopped after 4 s with 1 cases" in done.said
    assert list(json.loads((command.out / "lasts.json").read_text())["cases"]) == ["first"]


def test_tables_of_a_gpu_are_written_into_their_page_and_a_toys_are_not(command: Any) -> None:
    assert "has no results" in command("--docs").said
    command("--part", "counts", "--toy")
    refused = command("--docs")
    assert refused.status == 1
    assert "no whole results of: counts" in refused.said
    assert "old" in refused.page.read_text()
    command("--part", "counts")
    done = command("--docs")
    assert done.status == 0, done.said
    text = done.page.read_text()
    assert "### Cases" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_without_a_gpu_nothing_is_run_or_claimed(script: Path, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("No GPU: PyTorch")
    assert "Nothing was run, and nothing is claimed." in done.stdout
    assert not out.exists()


def test_an_environment_without_vllm_is_refused_with_a_sentence(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tandem_plugin.cli import machine

    monkeypatch.setattr(machine, "_version", lambda name: None)
    refused = module("gpu_ready").refusal(True)
    assert refused.status == 1
    assert "vLLM is not installed" in refused.sentence


def test_an_environment_whose_engines_would_not_find_tandem_is_refused(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tandem_plugin.cli import machine

    monkeypatch.setattr(machine, "entry_points", lambda group: ())
    monkeypatch.setattr(machine, "run_probe", lambda name: SimpleNamespace(error="not asked"))
    refused = module("gpu_ready").refusal(True)
    assert refused.status == 1
    assert "engine plugin: " in capsys.readouterr().out


def test_every_part_has_a_purpose_and_a_table_that_shows_what_was_left_out(module: Any) -> None:
    checks, bench = module("gpu_checks").PARTS, module("gpu").PARTS
    assert [part.name for part in checks] == [
        "v1", "v2", "speculative", "juniors", "lora", "sleep", "verl", "openrlhf",
    ]  # fmt: skip
    names = ["1.7b", "1.7b+0.6b", "4b", "4b+1.7b", "weights-1.7b", "weights-4b", "resuming"]
    assert [part.name for part in bench] == names
    left = {"passed": None, "found": "use vLLM 0.32.0 or newer", "rows": [], "load": 1.0}
    case = {"subject": "V2", "check": "all", **left}
    for part in checks:
        text = part.table({"cases": {"V2: all": case}}).markdown(
            {"command": "c", "cases": {"V2: all": case}}
        )
        assert "| V2 | all | nothing shown | use vLLM 0.32.0 or newer |" in text
    for part in bench[:-1]:
        content = {"command": "c", "cases": {"speculative": left}}
        assert "speculative: use vLLM 0.32.0" in part.table(content).markdown(content)
    assert all(part.purpose for part in [*checks, *bench])


def test_throughput_table_has_ratios_to_the_single_model_of_the_same_batch(module: Any) -> None:
    throughput, pairs = module("gpu_throughput"), module("gpu_pairs").PAIRS

    def row(batch: int, speed: float, **more: Any) -> dict[str, Any]:
        return {"batch": batch, "median": speed, "low": 1.0, "high": 2.0, **more}

    memory = {"senior_bytes": 2**30, "junior_bytes": 2**31, "blocks": 10, "block_size": 16}
    common = {"runner": "V2", "memory": memory, "engine_arguments": {"dtype": "bfloat16"}}
    cases = {
        "single": {**common, "rows": [row(1, 200.0), row(16, 1000.0)]},
        "speculative, 4 drafts": {
            **common,
            "rows": [row(1, 300.0, acceptance=0.96, tokens_per_round=4.3)],
        },
    }
    shown = throughput.table(pairs["4b"], {"cases": cases})
    assert [row[-3] for row in shown.rows] == ["", "", "1.50"]
    assert shown.rows[2][0] == "speculative, 4 drafts"
    assert shown.rows[2][-2:] == ["0.960", "4.30"]
    assert any("2.00 GiB (junior), room for 160 tokens" in note for note in shown.notes)


def test_models_have_as_many_values_as_those_that_they_stand_for(module: Any) -> None:
    """As Qwen publishes them: 0.6, 1.7 and 4.0 billion."""
    checkpoints = module("checkpoints")
    counts = [
        shape.parameters
        for shape in (checkpoints.QWEN3_600M, checkpoints.QWEN3_1_7B, checkpoints.QWEN3_4B)
    ]
    assert counts == [596_049_920, 1_720_574_976, 4_022_468_096]


def test_tied_models_share_as_much_of_a_distribution_as_untied_ones(
    module: Any, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    checkpoints = module("checkpoints")
    for tied in (False, True):
        shape = checkpoints.Shape(256, 64, 1, 2, 1, 32, vocabulary=512, tied=tied)
        model = AutoModelForCausalLM.from_pretrained(
            checkpoints.make(tmp_path, shape, 0, 0.5), dtype=torch.float32
        )
        assert sum(p.numel() for p in model.parameters()) == shape.parameters
        with torch.no_grad():
            logits = model(torch.arange(300, 400)[None]).logits
        assert 0.4 < float(logits.std()) < 0.6


def test_both_pages_have_a_place_for_a_gpus_tables(module: Any) -> None:
    page, parts = module("page"), module("parts")
    for script in ("gpu", "gpu_checks"):
        text = module(script).PAGE.read_text(encoding="utf-8")
        assert [text.count(marker) for marker in page.markers(parts.PLACE)] == [1, 1]
        assert [part.name for part in module(script).PARTS if f"`{part.name}`" not in text] == []


def test_checks_and_benchmarks_need_no_pytest() -> None:
    """The environment of whoever has the GPU may not have it."""
    program = (
        "import sys\n"
        f"sys.path[:0] = [{str(ROOT / 'benchmarks')!r}, {str(ROOT / 'integration_tests')!r}]\n"
        "sys.modules['pytest'] = None\n"
        "import gpu, gpu_checks\n"
        "import support.gpu.engine_checks, support.gpu.sleep_checks, support.gpu.trainer_checks\n"
        "print(len(gpu.PARTS) + len(gpu_checks.PARTS))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "15\n", done.stderr
