"""Small models shared by all integration tests, and the environment of a small CPU engine."""

from __future__ import annotations

import os
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
# Functions sent there are found by name.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tests"))  # refused.py
os.environ["PYTHONPATH"] = os.pathsep.join(
    part for part in (str(Path(__file__).parent), os.environ.get("PYTHONPATH")) if part
)


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
    from support.openrlhf_setup import OpenRLHFSetup

    return OpenRLHFSetup.make(tmp_path_factory.mktemp("openrlhf"), tokenizer)


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The demo's small model after a short lesson, with problems to train it on."""
    from support.learning import Learner

    return Learner.teach(tmp_path_factory.mktemp("learner"))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Path]:
    """senior, junior (same shape), other (another depth, width and number of KV heads)."""
    from support.models import make_model

    folder = tmp_path_factory.mktemp("checkpoints")
    make_model(folder / "senior", seed=0, tokenizer=tokenizer)
    make_model(folder / "junior", seed=1, tokenizer=tokenizer)
    make_model(
        folder / "other", seed=2, tokenizer=tokenizer, hidden=96, layers=3, heads=6, kv_heads=3
    )
    return {name: folder / name for name in ("senior", "junior", "other")}
