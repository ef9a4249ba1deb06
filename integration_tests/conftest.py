"""Small models shared by all integration tests, and the environment of a small CPU engine."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Tests send small functions to the engine's worker to look at its weights.
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
# Engines of tests that run at the same time would otherwise be bound to the same core.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
# The models are tiny: threads would wait for each other, and vLLM's attention on CPU strays by some
# tenths of a logit more often with several.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's job in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Functions sent there are found by name.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))  # refused.py
os.environ["PYTHONPATH"] = os.pathsep.join(
    part for part in (str(Path(__file__).parent), os.environ.get("PYTHONPATH")) if part
)

from support.vision_packages import offer_torchvision  # noqa: E402

offer_torchvision()


FOLDERS = {
    "engine": ("engine",),
    "adapters/tandem_verl": ("trainer",),
    "adapters/tandem_openrlhf": ("trainer", "openrlhf"),
    "adapters/tandem_trl": ("trainer", "trl"),
    "adapters/tandem_skyrl": ("trainer", "skyrl"),
}
"""The markers of the tests in a folder."""


def pytest_configure(config: pytest.Config) -> None:
    # Where these tests lie without the project's pyproject.toml, as on a machine with a GPU.
    for marker in ("engine", "trainer", "openrlhf", "trl", "skyrl", "speculative", "v1", "v2"):
        config.addinivalue_line("markers", marker)
    for marker in ("lane", "hooks", "long", "gpu(gib, devices=1)"):
        config.addinivalue_line("markers", marker)
    if not config.pluginmanager.hasplugin("timeout"):  # pytest-timeout
        config.addinivalue_line("markers", "timeout(seconds): has no effect here")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and by the model runner among their parameters."""
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        place = item.path.relative_to(here).as_posix()
        callspec = getattr(item, "callspec", None)
        values = list(callspec.params.values()) if callspec else []
        values += [value[0] for value in values if isinstance(value, tuple) and value]
        chosen = [value for value in values if isinstance(value, str) and value in ("v1", "v2")]
        for folder, markers in FOLDERS.items():
            if place.startswith(f"{folder}/"):
                chosen += markers
        for marker in chosen:
            item.add_marker(marker)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``pytest -m gpu`` imports the modules with such tests, and nothing that others need."""
    if not str(config.option.markexpr).startswith("gpu") or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if re.search(r"\bmark\.gpu\(|\bon_gpu\(", text) else True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if marker := item.get_closest_marker("gpu"):
        from support.device import missing

        if reason := missing(**marker.kwargs):
            pytest.skip(reason)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from support.models import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    checkpoints: dict[str, Path],
) -> Any:
    """On which the trainer runs that a module tests, by the kind that it names as ``BENCH``."""
    return request.module.BENCH.make(tmp_path_factory.mktemp("bench"), checkpoints["senior"])


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of a module capture what they do."""
    return tmp_path_factory.mktemp("captured")


@pytest.fixture(scope="session")
def rule(checkpoints: dict[str, Path]) -> Any:
    """That of most runs: ``word`` with a cap of 6."""
    from tandem_plugin import TandemConfig, TandemRules, Vocabulary

    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6})
    return TandemRules(config, Vocabulary.from_path(checkpoints["senior"])).default


@pytest.fixture(scope="session")
def openrlhf(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Any:
    """A senior and a junior that OpenRLHF can train in bfloat16."""
    from support.device import is_gpu
    from support.openrlhf_setup import OpenRLHFSetup

    device = "cuda" if is_gpu() else "cpu"
    return OpenRLHFSetup.make(tmp_path_factory.mktemp("openrlhf"), tokenizer, device)


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The demo's small model after a short lesson, with problems to train it on."""
    from support.learning import Learner

    return Learner.teach(tmp_path_factory.mktemp("learner"))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Path]:
    """senior, junior (same shape), other (another depth, width and number of KV heads)."""
    from support.device import is_gpu
    from support.models import make_model

    folder = tmp_path_factory.mktemp("checkpoints")
    same, other = SHAPES["gpu" if is_gpu() else "cpu"]
    make_model(folder / "senior", seed=0, tokenizer=tokenizer, **same)
    make_model(folder / "junior", seed=1, tokenizer=tokenizer, **same)
    make_model(folder / "other", seed=2, tokenizer=tokenizer, **same | other)
    return {name: folder / name for name in ("senior", "junior", "other")}


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cpu": ({}, {"hidden": 96, "layers": 3, "heads": 6, "kv_heads": 3}),
    # Heads that the attention kernels of a GPU have.
    "gpu": (
        {"hidden": 128, "head_dim": 64, "spread": 0.1},
        {"hidden": 192, "layers": 3, "heads": 6, "kv_heads": 3},
    ),
}
"""Of a senior, and what is different of another junior."""
