"""The engine of rollouts, where it cannot start, and what it does not say."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin.lab.rollouts.engine import (
    _EXPECTED,
    _seeing,
    _without_expected_warnings,
    response_progress,
    start_engine,
    with_images,
)
from tandem_plugin.lab.rollouts.generate import generated_tokens


def test_a_vllm_that_cannot_be_imported_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "tandem_plugin.engine.llm", raising=False)
    with refused("vllm-import-failed", error="import of vllm halted; None in sys.modules"):
        start_engine("model", {}, None, 16)


def test_engines_for_images_admit_as_many_as_a_prompt_has_and_no_videos() -> None:
    assert with_images({"seed": 1}, {"p": 0.3}, 0) == ({"seed": 1}, {"p": 0.3})
    arguments, settings = with_images({"seed": 1}, {"p": 0.3}, 3)
    assert arguments == {"seed": 1, "limit_mm_per_prompt": {"image": 3, "video": 0}}
    assert settings == {"p": 0.3, "images": True}
    given = {"limit_mm_per_prompt": {"image": 5}}
    assert with_images(given, None, 3) == ({"limit_mm_per_prompt": {"image": 5, "video": 0}}, None)


@pytest.mark.parametrize("sees", [True, False])
def test_a_text_model_alone_answers_no_images(sees: bool) -> None:
    config = SimpleNamespace(is_multimodal_model=sees)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    assert _seeing(llm, "m", {}) is llm
    limits = {"limit_mm_per_prompt": {"image": 1}}
    if sees:
        assert _seeing(llm, "m", limits) is llm
        return
    with refused("engine-without-images", model="m"):
        _seeing(llm, "m", limits)


def test_expected_warnings_of_vllm_are_left_out_and_others_are_not() -> None:
    log, logger = io.StringIO(), logging.getLogger("vllm")
    handler = logging.StreamHandler(log)
    logger.addHandler(handler)
    try:
        with _without_expected_warnings():
            for text in (*_EXPECTED, "Something else"):
                logging.getLogger("vllm.engine.arg_utils").warning("%s ...", text)
        logger.warning("%s later", _EXPECTED[0])
    finally:
        logger.removeHandler(handler)
    assert log.getvalue() == f"Something else ...\n{_EXPECTED[0]} later\n"


def metric(name: str, value: float) -> Any:
    return SimpleNamespace(name=name, value=value)


@pytest.mark.parametrize(("logs", "tokens"), [(True, 42), (False, None)])
def test_generated_tokens_are_vllms_counters(logs: bool, tokens: int | None) -> None:
    counters = [metric("vllm:generation_tokens", 40.0), metric("vllm:generation_tokens", 2.0)]
    engine = SimpleNamespace(
        llm_engine=SimpleNamespace(log_stats=logs),
        get_metrics=lambda: [metric("vllm:prompt_tokens", 7.0), *counters],
    )
    assert generated_tokens(engine) == tokens


@pytest.mark.parametrize(("written", "said"), [(900, "900 tokens"), (None, "30 tokens")])
def test_progress_counts_what_is_being_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: Any, said: str
) -> None:
    monkeypatch.setattr("tandem_plugin.progress.EVERY_S", 0.01)
    with response_progress("rollout", 16, 0, lambda: written) as advance:
        advance(30)
        while said not in (log := capsys.readouterr().err):
            pass
    assert "rollout: 1 of 16" in log
