"""Engines that are checked: on a GPU as users start them, at toy size on a CPU as tests do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support import worker
from support.checked_engine import TIGHT, CheckedEngine
from support.engine import async_engine
from support.gpu import in_worker
from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

TANDEM: dict[str, Any] = {"schedule": "word", "cap": 4}

CAPTURE_SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64]


@dataclass(frozen=True, slots=True)
class Asked:
    """One engine."""

    runner: str
    mode: str = "lockstep"
    graphs: str = "FULL_AND_PIECEWISE"
    """The kinds of CUDA graphs, or "eager"."""
    dtype: str = "bfloat16"
    junior: str = "junior"
    """One of :func:`checkpoints`."""
    senior: str = "senior"

    def __str__(self) -> str:
        beside = "" if self.junior == "junior" else f", beside {self.junior}"
        return f"{self.runner.upper()}, {self.mode}, {self.graphs}, {self.dtype}{beside}"


@dataclass
class Running(CheckedEngine):
    """An engine that was started."""

    asked: Asked = Asked("v2")
    toy: bool = False

    def replays(self) -> int:
        """How many CUDA graphs were replayed since the engine's start."""
        if self.toy:
            return sum(self.call(worker.graph_replays).values())
        return int(self.call(in_worker.replays))


@contextmanager
def running(
    asked: Asked,
    toy: bool,
    **options: Any,
) -> Iterator[Running]:
    """Start an engine of little memory. options: further engine arguments."""
    found = checkpoints()
    record = Path(tempfile.mkdtemp(prefix="record-", dir=found["senior"].parent))
    tandem = {**TANDEM, "junior": found[asked.junior], "record": record, "mode": asked.mode}
    arguments = {**TIGHT, "max_model_len": 256, "dtype": asked.dtype, **options}
    with ExitStack() as stack:
        if toy:
            graphs, scheduling = _stand_in(asked, stack), asked.runner == "v2"
        else:
            graphs, scheduling = _graphs(asked), None
        engine = stack.enter_context(
            async_engine(
                asked.runner,
                found[asked.senior],
                tandem,
                async_scheduling=scheduling,
                **{**arguments, **graphs},
            )
        )
        # Rounds of drafts may end past a response, and asynchronous scheduling one token later.
        spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if asked.mode == "speculative" else 1
        one = Running(engine, record, tokenizer(), TANDEM, spare, asked=asked, toy=toy)
        if not toy:
            one.call(in_worker.count_replays)
        yield one


def _graphs(asked: Asked) -> dict[str, Any]:
    """On a GPU: vLLM's own executor, compiler and graphs."""
    own: dict[str, Any] = {"distributed_executor_backend": None, "gpu_memory_utilization": 0.3}
    if asked.graphs == "eager":
        return {**own, "enforce_eager": True}
    compilation = {"cudagraph_mode": asked.graphs, "cudagraph_capture_sizes": CAPTURE_SIZES}
    return {**own, "enforce_eager": False, "compilation_config": compilation}


def _stand_in(asked: Asked, stack: ExitStack) -> dict[str, Any]:
    """On a CPU: the stand-in for CUDA graphs."""
    if asked.graphs == "eager":
        return {}
    from support.graphs import with_graphs

    chosen = with_graphs(asked.graphs, cudagraph_capture_sizes=CAPTURE_SIZES)
    return stack.enter_context(chosen)


@cache
def tokenizer() -> Any:
    """The tokenizer of all checkpoints."""
    from support.models import make_tokenizer

    return make_tokenizer()


_SAME: dict[str, Any] = {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 64}
_SHAPES: dict[str, dict[str, Any]] = {
    "senior": _SAME,
    "junior": _SAME,
    "trained": _SAME,
    "deeper": {**_SAME, "hidden": 192, "layers": 3},
    "other": {**_SAME, "hidden": 192, "layers": 3, "heads": 6, "kv_heads": 3},
}


class _Checkpoints(dict[str, Path]):
    """Made when they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="tandem-gpu-"))

    def __missing__(self, name: str) -> Path:
        from support.models import make_model

        seed, shape = list(_SHAPES).index(name), _SHAPES[name]
        self[name] = make_model(
            self._folder / name, seed=seed, tokenizer=tokenizer(), spread=0.1, **shape
        )
        return self[name]


@cache
def checkpoints() -> dict[str, Path]:
    """Tiny models, made once a process: the first three only differ in their weights.

    "trained" is what a senior becomes; "deeper" has another depth and width with the senior's
    attention, "other" another attention.
    """
    return _Checkpoints()


@cache
def adapter() -> tuple[Path, Path]:
    """An adapter (LoRA) of the senior, and the senior with it merged."""
    from support.lora import make_adapter

    senior = checkpoints()["senior"]
    return make_adapter(senior, senior.parent / "adapted", seed=9)
