"""Two models under vLLM's compiler: what an engine's configuration says, and what it writes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.engine import on_runner
from support.models import make_model
from support.speculation import needs_drafting

MODES = ["lockstep", pytest.param("speculative", marks=needs_drafting)]


def configure(senior: Path, tandem: dict[str, Any], **arguments: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    args = EngineArgs(
        str(senior),
        max_model_len=256,
        dtype="float32",
        additional_config={"tandem": tandem, "another": "plugin's"},
        **arguments,
    )
    return args.create_engine_config()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [64, 96])
def test_all_reduces_of_models_of_different_width_are_not_fused(
    checkpoints: dict[str, Path], tmp_path: Path, tokenizer: Any, mode: str, width: int
) -> None:
    """And the ranges that vLLM compiles for stay the senior's when the junior is configured."""
    from tandem_plugin.engine.junior import junior_config

    junior = make_model(tmp_path / "junior", seed=4, tokenizer=tokenizer, hidden=width)
    fused = {"fuse_allreduce_rms": True, "fi_allreduce_fusion_max_size_mb": 0.1}
    with on_runner("v1" if mode == "lockstep" else "v2"):
        config = configure(
            checkpoints["senior"],
            {"junior": str(junior), "mode": mode},
            tensor_parallel_size=2,
            max_num_batched_tokens=2048,
            compilation_config={"pass_config": fused},
        )
        compilation = config.compilation_config
        assert compilation.pass_config.fuse_allreduce_rms is (width == 64)
        ranges = list(compilation.compile_ranges_endpoints)
        assert ranges == [409, 2048], "0.1 MiB of the senior's hidden states, and a whole batch"
        compilation.pass_config.fuse_allreduce_rms = True
        assert junior_config(config).compilation_config is compilation
        assert compilation.compile_ranges_endpoints == ranges


def test_change_of_schedule_seed_or_record_finds_the_graphs_that_were_compiled(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    def hashed(**tandem: Any) -> str:
        return str(configure(checkpoints["senior"], tandem).compute_hash())

    junior = str(checkpoints["junior"])
    for changed in ({"p": 0.3}, {"seed": 5}, {"record": str(tmp_path)}, {"schedule": "token"}):
        assert hashed(junior=junior, **changed) == hashed(junior=junior)
    assert hashed(junior=str(checkpoints["other"])) != hashed(junior=junior)


@needs_drafting
def test_modes_and_numbers_of_drafts_have_graphs_of_their_own(checkpoints: dict[str, Path]) -> None:
    with on_runner("v2"):
        tandem: list[dict[str, Any]] = [
            {},
            {"mode": "speculative"},
            {"mode": "speculative", "drafts": 5},
            {"mode": "speculative", "drafts": {1: 5, 9: 2}},
        ]
        hashes = {configure(checkpoints["senior"], one).compute_hash() for one in tandem}
    assert len(hashes) == len(tandem)


def test_every_process_of_an_engine_reads_the_same_settings(checkpoints: dict[str, Path]) -> None:
    """Workers are sent the configuration by pickle, and Ray's by cloudpickle."""
    import cloudpickle

    from tandem_plugin.engine.junior import junior_config

    config = configure(checkpoints["senior"], {"junior": str(checkpoints["other"])})
    for module in (pickle, cloudpickle):
        sent = pickle.loads(module.dumps(config))
        assert sent.compute_hash() == config.compute_hash()
        assert dict(sent.additional_config) == dict(config.additional_config)
    assert junior_config(config).additional_config is config.additional_config
