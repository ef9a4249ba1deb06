"""The benchmarks for a GPU over engines that only count: what is measured, kept, and left out."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    for folder in ("integration_tests", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


class Engine:
    """Takes 0.1 s a token of a batch, and drafts where it is speculative."""

    def __init__(self, mode: str, counters: dict[str, int]) -> None:
        self.mode, self._counters = mode, counters

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stretch(self, batch: int, tokens: int) -> Any:
        drafted = self._counters if self.mode == "speculative" else {}
        return SimpleNamespace(tokens=batch * tokens, seconds=0.1 * tokens, drafted=drafted)

    def runner(self) -> str:
        return "V2"

    def memory(self) -> dict[str, int]:
        return {"senior_bytes": 1, "junior_bytes": 2, "blocks": 3, "block_size": 16}

    def sync(self, checkpoint: Path, rounds: int) -> list[float]:
        return [0.5] * rounds

    def sleep(self, level: int, checkpoint: Path) -> dict[str, float]:
        return {"sleep": float(level), "wake": 0.25, "gib_given_back": 10.0 * level}


@pytest.fixture
def counters() -> dict[str, int]:
    from dataclasses import fields

    from tandem_plugin.engine.speculative.draft_stats import DraftStats

    return {field.name: 8 for field in fields(DraftStats)}


@pytest.fixture
def started(module: Any, monkeypatch: pytest.MonkeyPatch, counters: Any) -> dict[str, Engine]:
    """Engines in the place of real ones, by mode; the speculative one is not there at first."""
    found: dict[str, Engine] = {}
    process = module("engine_process")

    def start(pair: Any, mode: str, toy: bool, *drafts: Any, **more: Any) -> Engine:
        if mode == "speculative" and "lockstep" in found and "again" not in found:
            raise process.StartError("The engine did not start: use vLLM 0.32.0 or newer.")
        found[mode] = Engine(mode, counters)
        return found[mode]

    for name in ("gpu_throughput", "gpu_weights"):
        monkeypatch.setattr(module(name), "start", start)
    pair = module("gpu_pairs").Pair
    monkeypatch.setattr(pair, "checkpoints", lambda self, toy: (Path("senior"), Path("junior")))
    return found


def test_throughput_is_that_of_every_batch_and_draft_length(
    module: Any, started: dict[str, Any], tmp_path: Path
) -> None:
    throughput, pair = module("gpu_throughput"), module("gpu_pairs").PAIRS["4b"]
    results = module("results").Results(tmp_path, "4b", {"command": "c"})
    throughput.measure(pair, results, False)
    drafted = [f"speculative, {drafts} drafts" for drafts in (2, 4, 8)]
    assert list(results.cases) == ["single", "lockstep", *drafted]
    assert results.cases[drafted[0]]["passed"] is None
    assert [row["batch"] for row in results.cases["lockstep"]["rows"]] == [1, 16, 64, 256]
    assert results.cases["single"]["rows"][3]["median"] == pytest.approx(2560)
    text = throughput.table(pair, {"cases": results.cases}).markdown(
        {"command": "c", "cases": results.cases}
    )
    assert "speculative, 8 drafts: The engine did not start: use vLLM 0.32.0 or newer." in text
    for name in drafted:
        del results.cases[name]
    single = started.pop("single")
    started["again"] = single
    throughput.measure(pair, results, False)
    assert "single" not in started, "what was measured is not measured again"
    for name in drafted:
        rows = results.cases[name]["rows"]
        assert [row["batch"] for row in rows] == [1, 16, 64, 256]
        assert all(row["counters"]["rounds"] == 8 * 4 for row in rows)
    assert "| speculative, 8 drafts | V2 | 256 |" in throughput.table(
        pair, {"cases": results.cases}
    ).markdown({"command": "c", "cases": results.cases})


def test_weights_are_synced_and_slept_at_both_levels(
    module: Any, started: dict[str, Any], tmp_path: Path
) -> None:
    weights, pair = module("gpu_weights"), module("gpu_pairs").PAIRS["4b"]
    results = module("results").Results(tmp_path, "w", {"command": "c"})
    weights.measure(pair, results, False)
    content = {"command": "c", "cases": results.cases}
    text = weights.table(pair, content).markdown(content)
    for row in (
        "| single | V2 | weight sync | 0.500 |  |",
        "| lockstep | V2 | sleep, level 2, later | 2.000 | 20.0 |",
        "| lockstep | V2 | wake up, level 1, first | 0.250 |  |",
    ):
        assert row in text


def test_an_engine_that_fails_is_a_failed_case_and_not_one_left_out(
    module: Any, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    throughput, pair = module("gpu_throughput"), module("gpu_pairs").PAIRS["4b"]
    error = module("engine_process").StartError("The engine did not start: out of memory")

    def start(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(throughput, "start", start)
    results = module("results").Results(tmp_path, "4b", {"command": "c"})
    throughput.measure(pair, results, False)
    assert [case["passed"] for case in results.cases.values()] == [False] * 5


def test_every_draft_length_of_a_table_can_be_forced(module: Any) -> None:
    scheduler = SimpleNamespace(dynamic_sd_lookup=[0, 8, 4, 4])
    core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler))
    engine = SimpleNamespace(engine_core=core)
    for drafts, found in ((2, [2] * 4), (None, [2] * 4), (8, [8] * 4)):
        module("engine_work")._choose_drafts(engine, drafts)
        assert scheduler.dynamic_sd_lookup == found
    scheduler.dynamic_sd_lookup = None  # lockstep
    module("engine_work")._choose_drafts(engine, 2)
    assert scheduler.dynamic_sd_lookup is None


def test_weight_sync_loads_every_tensor_of_every_file_each_time(
    module: Any, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    for number in range(2):
        save_file({f"layer.{number}": torch.zeros(2)}, tmp_path / f"model-{number}.safetensors")
    loaded: list[list[str]] = []
    model = SimpleNamespace(load_weights=lambda weights: loaded.append([n for n, _ in weights]))
    worker = SimpleNamespace(
        device=torch.device("cpu"), model_runner=SimpleNamespace(get_model=lambda: model)
    )
    reset: list[bool] = []
    llm = SimpleNamespace(
        collective_rpc=lambda function, args: [function(worker, *args)],
        reset_prefix_cache=lambda: reset.append(True),
    )
    times = module("engine_weights").sync(llm, str(tmp_path), 3)
    assert len(times) == 3
    assert loaded == [["layer.0", "layer.1"]] * 3
    assert reset == [True]


@pytest.mark.parametrize("held", ["composite", "draft"])
def test_memory_tells_the_juniors_weights_wherever_the_mode_holds_it(
    module: Any, held: str
) -> None:
    import torch

    senior, junior = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(2, 2, bias=False)
    if held == "composite":
        object.__setattr__(senior, "junior", junior)
    draft = SimpleNamespace(junior=junior) if held == "draft" else None
    runner = SimpleNamespace(get_model=lambda: senior, get_draft_model=lambda: draft)
    found = module("engine_weights")._weights(SimpleNamespace(model_runner=runner))
    assert found == {"senior_bytes": 64, "junior_bytes": 16}
