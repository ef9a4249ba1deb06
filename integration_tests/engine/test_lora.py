"""A senior with an adapter (LoRA): the junior is the base that the adapter is for, held once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import records, requests, worker
from support.boundary_ids import word_boundaries
from support.device import graph_arguments, is_gpu, on_gpu
from support.engine import RUNNERS, tandem_engine
from support.lora import RANK, has_lora, make_adapter
from support.parity import reference_of
from support.reading import Readers
from support.reference import algorithm_1, along
from support.requests import PROMPTS

pytestmark = [
    pytest.mark.skipif(not has_lora(), reason="adapters need vLLM 0.29 or newer"),
    pytest.mark.long,
]
CAP = 4
LENGTH = 24
SEEDS = [1, 2, 3]
ADAPTING = {"enable_lora": True, "max_loras": 2, "max_lora_rank": RANK}


@pytest.fixture(scope="module")
def adapters(
    checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """Two adapters of the senior, each a folder and the checkpoint with it merged."""
    pytest.importorskip("peft", reason="PEFT is not installed")
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: make_adapter(checkpoints["senior"], folder / name, seed=seed)
        for seed, name in enumerate(("first", "second"))
    }


# On a GPU vLLM's kernels for adapters have no float32.
DTYPE = "bfloat16" if is_gpu() else "float32"
KINDS = [(runner, "eager") for runner in RUNNERS]
"""Model runners, and the kinds of CUDA graphs."""
on_every_device = pytest.mark.parametrize(
    "engine",
    [*KINDS, on_gpu("v2", "FULL_AND_PIECEWISE"), on_gpu("v1", "PIECEWISE")],
    ids="-".join,
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def engine(
    request: pytest.FixtureRequest,
    checkpoints: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Any, Path]]:
    """An engine that takes adapters, whose junior is its senior's base; and its record's folder."""
    (runner, graphs), record = request.param, tmp_path_factory.mktemp("record")
    tandem = {"cap": CAP, "record": record, "measure_every": 1}
    options = {**ADAPTING, **graph_arguments(graphs), "dtype": DTYPE}
    with tandem_engine(runner, checkpoints["senior"], tandem, **options) as running:
        yield running, record


def greedy(
    engine: Any, tokenizer: Any, adapters: list[tuple[int, Path] | None], seed: int = 0
) -> list[list[int]]:
    """Responses to every prompt by every seed, in one batch; prompts take adapters in turn."""
    from vllm.lora.request import LoRARequest

    chosen = [
        None if one is None else LoRARequest(str(one[0]), one[0], str(one[1])) for one in adapters
    ]
    prompts = [tokenizer(p).input_ids for p in PROMPTS for _ in SEEDS]
    tandem = [{"seed": seed + s} for _ in PROMPTS for s in SEEDS]
    in_turn = [chosen[i % len(chosen)] for i in range(len(prompts))]
    return requests.greedy(engine, prompts, tandem, LENGTH, adapters=in_turn)


def check(
    responses: list[list[int]], seniors: list[Path], junior: Path, tokenizer: Any, seed: int = 0
) -> None:
    """Algorithm 1 over Hugging Face's forward passes; prompts take seniors in turn."""
    assert {len(response) for response in responses} == {LENGTH}
    words = word_boundaries(tokenizer)
    asked = [(tokenizer(p).input_ids, seed + s) for p in PROMPTS for s in SEEDS]
    written = [
        (prompt, response, functools.partial(algorithm_1, own, 0.5, CAP, words))
        for (prompt, own), response in zip(asked, responses, strict=True)
    ]
    for turn, senior in enumerate(seniors):
        reference_of(senior, junior, DTYPE).check(written[turn :: len(seniors)])


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_junior_of_its_own_goes_with_adapters_too(
    runner: str,
    checkpoints: dict[str, Path],
    adapters: dict[str, tuple[Path, Path]],
    tokenizer: Any,
) -> None:
    """Of another shape, with weights of its own. Before the module's engine runs beside it."""
    adapter, merged = adapters["first"]
    tandem = {"cap": CAP, "junior": checkpoints["other"]}
    with tandem_engine(runner, checkpoints["senior"], tandem, **ADAPTING) as running:
        responses = greedy(running, tokenizer, [(1, adapter)])
        check(responses, [merged], checkpoints["other"], tokenizer)
        ((_, junior),) = running.collective_rpc(worker.weight_bytes)
        assert running.collective_rpc(worker.bytes_of_the_juniors_own) == [junior]


@on_every_device
def test_the_adapter_is_the_seniors_and_the_base_the_juniors(
    engine: tuple[Any, Path],
    checkpoints: dict[str, Path],
    adapters: dict[str, tuple[Path, Path]],
    tokenizer: Any,
) -> None:
    """Greedy parity with an adapter, with two of them in one batch, and with none."""
    base = checkpoints["senior"]
    (first, merged), (second, other) = adapters["first"], adapters["second"]
    alone = greedy(engine[0], tokenizer, [(1, first)])
    check(alone, [merged], base, tokenizer)
    mixed = greedy(engine[0], tokenizer, [(1, first), (2, second)])
    check(mixed, [merged, other], base, tokenizer)
    beside = greedy(engine[0], tokenizer, [(1, first), None, (2, second)])
    check(beside, [merged, base, other], base, tokenizer)
    plain = greedy(engine[0], tokenizer, [None])
    if not is_gpu():  # where the rule cannot tell a model from itself
        check(plain, [base], base, tokenizer)
    assert len({str(responses) for responses in (alone, mixed, plain)}) == 3


def test_records_and_measures_are_those_of_adapter_and_base(
    engine: tuple[Any, Path],
    checkpoints: dict[str, Path],
    adapters: dict[str, tuple[Path, Path]],
    tokenizer: Any,
) -> None:
    from tandem_plugin.engine.wire import MeasureSums

    running, folder = engine
    base, (adapter, merged) = checkpoints["senior"], adapters["first"]
    tell = running.llm_engine.collective_rpc
    before = MeasureSums(**tell("tandem_measures")[0])
    start = 100
    responses = greedy(running, tokenizer, [(1, adapter)], seed=start)
    measured = MeasureSums(**tell("tandem_measures")[0]).since(before)
    greedy(running, tokenizer, [(1, adapter)])  # a request is recorded at the step after its last
    words = word_boundaries(tokenizer)
    seeds = [start + seed for _ in PROMPTS for seed in SEEDS]
    prompts = [tokenizer(p).input_ids for p in PROMPTS for _ in SEEDS]
    rows = []
    for prompt, response, seed in zip(prompts, responses, seeds, strict=True):
        authors = algorithm_1(seed, 0.5, CAP, words)
        rows.append((prompt, response, [int(one) for one in along(authors, response)]))
    written = {(tuple(response), tuple(bits)) for _, response, bits in rows}
    recorded = {
        (tuple(row["response_ids"]), tuple(row["authorship"]))
        for row in records.all_records(folder)
        if row["tandem_seed"] > start
    }
    assert recorded == written
    expected_means = Readers.of(merged, base).means(rows)
    means = {f"tandem/{name}": value for name, value in measured.means().items()}
    assert means == pytest.approx(expected_means, abs=1e-5)


@on_every_device
def test_the_base_is_held_once(engine: tuple[Any, Path]) -> None:
    """Every weight of the junior is the senior's own, and no sync finds the junior by a name."""
    ((senior, junior),) = engine[0].collective_rpc(worker.weight_bytes)
    assert junior == senior > 0
    assert engine[0].collective_rpc(worker.bytes_of_the_juniors_own) == [0]
    assert engine[0].collective_rpc(worker.junior_buffer_names) == [[]]


@pytest.mark.parametrize("how", ["sync", "reload", "sleep"])
def test_what_would_change_the_base_is_refused_and_changes_nothing(
    engine: tuple[Any, Path],
    checkpoints: dict[str, Path],
    adapters: dict[str, tuple[Path, Path]],
    tokenizer: Any,
    how: str,
) -> None:
    running = engine[0]
    before = running.collective_rpc(worker.junior_digest)
    call, code = {
        "sync": ((worker.sync, (str(checkpoints["junior"]), 1_000)), "lora-full-weights-sent"),
        "reload": ((worker.reload, (str(checkpoints["junior"]),)), "lora-full-weights-sent"),
        "sleep": ((sleep_deeply, ()), "lora-sleep-discards-base"),
    }[how]
    with pytest.raises(Exception, match=code):
        running.collective_rpc(call[0], args=call[1])
    assert running.collective_rpc(worker.junior_digest) == before
    adapter, merged = adapters["second"]
    responses = greedy(running, tokenizer, [(2, adapter)], seed=50)
    check(responses, [merged], checkpoints["senior"], tokenizer, seed=50)


def sleep_deeply(worker: Any) -> None:
    from vllm.v1.worker.gpu_worker import Worker

    Worker.sleep(getattr(worker, "worker", worker), level=2)


def test_an_adapter_of_heads_or_embeddings_is_refused(
    engine: tuple[Any, Path], checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """From a trainer's tensors, of which vLLM would leave out what it has no layer for."""
    adapter, _ = make_adapter(
        checkpoints["senior"], tmp_path, seed=3, targets=["q_proj", "lm_head"]
    )
    with pytest.raises(Exception, match=r"lm_head.*adapter-layers-unsupported"):
        engine[0].collective_rpc(add_from_tensors, args=(str(adapter),))


def add_from_tensors(worker: Any, folder: str) -> None:
    """As a trainer adds an adapter: its tensors, read from no folder."""
    from safetensors.torch import load_file
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    manager = worker.model_runner.lora_manager._adapter_manager
    helper = PEFTHelper.from_local_dir(folder, 256)
    tensors = load_file(Path(folder) / "adapter_model.safetensors")
    adapter = LoRAModel.from_lora_tensors(
        lora_model_id=77, tensors=tensors, peft_helper=helper, device="cpu"
    )
    manager.add_adapter(adapter)
