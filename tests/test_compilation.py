"""What vLLM's compiler is told about an engine with two models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine.compilation import AdditionalConfig, keep_all_reduces_plain


def engine(width: int, fused: bool) -> Any:
    passes = SimpleNamespace(fuse_allreduce_rms=fused)
    return SimpleNamespace(
        model_config=model(width), compilation_config=SimpleNamespace(pass_config=passes)
    )


def model(width: int) -> Any:
    return SimpleNamespace(get_hidden_size=lambda: width)


@pytest.mark.parametrize(
    ("senior", "junior", "asked", "left"),
    [
        (2560, 4096, True, False),
        (4096, 2560, True, False),
        (2560, 2560, True, True),
        (2560, 4096, False, False),
    ],
)
def test_all_reduces_are_fused_for_models_of_one_width_alone(
    senior: int, junior: int, asked: bool, left: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = engine(senior, asked)
    keep_all_reduces_plain(config, model(junior))
    keep_all_reduces_plain(config, model(junior))
    assert config.compilation_config.pass_config.fuse_allreduce_rms is left
    assert len(caplog.records) == (asked and not left), "it is said once"


def test_hash_follows_what_graphs_depend_on_and_other_plugins_settings() -> None:
    tandem = {"junior": "a", "mode": "lockstep", "drafts": None, "p": 0.5, "seed": 0}

    def hashed(other: Any = 1, **changed: Any) -> str:
        return AdditionalConfig({"tandem": tandem | changed, "other": other}).compute_hash()

    assert hashed(p=0.3, seed=7, record="folder", schedule="token") == hashed()
    different: list[dict[str, Any]] = [
        {"junior": "b"},
        {"mode": "speculative", "drafts": 4},
        {"mode": "speculative", "drafts": {1: 8, 16: 4}},
        {"other": 2},
    ]
    assert len({hashed(), *(hashed(**one) for one in different)}) == 5
