"""Training engines of verl's that are FSDP's own where a mask is read: their sources say so.

They need packages and devices of their own, so that no run of them is compared. FSDP's engine reads
``loss_mask`` in one place, and the loss reads ``response_mask``; both are FSDP's here too. A method
that newly overrides one of FSDP's has to be read before its name may stay. So does a method of
Megatron's engine that newly reads a setting listed here.
"""

from __future__ import annotations

import ast

import pytest
from foreign_source import function_of, source_of

ENGINES = "verl.workers.engine"
FSDP = f"{ENGINES}.fsdp.transformer_impl"
COUNT = 'batch_num_tokens = data["loss_mask"].sum().to(get_device_id())'

OVERRIDES = {
    f"{ENGINES}.fsdp.fsdp_turbo_impl": {
        # Parallel groups, sharding and clipping.
        "_init_device_mesh", "_build_fsdp_module", "_build_module", "get_data_parallel_rank",
        "get_data_parallel_size", "get_data_parallel_group", "is_mp_src_rank_with_outputs",
        "optimizer_step",
    },
    f"{ENGINES}.veomni.transformer_impl": {
        # The same, and what is saved and sent.
        "__init__", "initialize", "_build_optimizer", "_build_lr_scheduler",
        "_build_model_optimizer", "optimizer_step", "get_data_parallel_rank",
        "get_data_parallel_size", "get_data_parallel_group", "get_model_parallel_group",
        "get_context_parallel_group", "is_mp_src_rank_with_outputs", "train_mode", "eval_mode",
        "to", "save_checkpoint", "load_checkpoint", "get_per_tensor_param_shard",
        "_hf_delta_entry", "get_per_tensor_param",
        # Counts tokens as FSDP does, below; adds keys to the model's inputs and outputs.
        "forward_backward_batch", "prepare_model_inputs", "prepare_model_outputs",
    },
}  # fmt: skip
"""The methods of FSDP's that each module's engines override."""


def methods(module: str) -> dict[str, set[str]]:
    """The methods of each class of a module that is an engine."""
    classes = [node for node in ast.parse(source_of(module)).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        for node in classes
        if "Engine" in node.name and not node.name.endswith("Ctx")
    }


@pytest.mark.parametrize("module", OVERRIDES)
def test_engine_overrides_no_other_method_of_fsdps(module: str) -> None:
    fsdps = set().union(*methods(FSDP).values())
    own = set().union(*methods(module).values())
    assert own & fsdps == OVERRIDES[module]


@pytest.mark.parametrize("module", [FSDP, *OVERRIDES])
def test_masks_are_read_where_fsdp_counts_tokens_alone(module: str) -> None:
    lines = [line.strip() for line in source_of(module).splitlines()]
    counts = 0 if module.endswith("fsdp_turbo_impl") else 1
    assert [line for line in lines if "loss_mask" in line] == [COUNT] * counts
    assert not [line for line in lines if "response_mask" in line]


OF_MEGATRON = {
    "use_megatron_fsdp": {"_build_megatron_module", "initialize"},
    "vanilla_mbridge": {"_build_tf_config"},
    "vanilla_bridge": {
        "_build_tf_config", "_build_megatron_module", "get_per_tensor_param", "_mcore_export_index",
    },
}  # fmt: skip
"""Settings of Megatron's, and the methods that read them: they make the model, or send weights."""


@pytest.mark.parametrize("setting", OF_MEGATRON)
def test_setting_of_megatron_is_read_where_no_batch_is(setting: str) -> None:
    (engine,) = (
        node
        for node in ast.parse(source_of(f"{ENGINES}.megatron.transformer_impl")).body
        if isinstance(node, ast.ClassDef) and node.name == "MegatronEngine"
    )
    reading = {
        one.name
        for one in engine.body
        if isinstance(one, ast.FunctionDef) and f".{setting}" in ast.unparse(one)
    }
    assert reading - {"__init__"} == OF_MEGATRON[setting]


@pytest.mark.parametrize("method", ["prepare_model_inputs", "prepare_model_outputs"])
def test_veomni_takes_inputs_and_outputs_from_fsdp(method: str) -> None:
    module = f"{ENGINES}.veomni.transformer_impl"
    own = function_of(module, f"VeOmniEngineWithLMHead.{method}")
    assert f"super().{method}(" in ast.unparse(own)
