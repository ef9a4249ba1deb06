"""Adapters that verl trains: what is accepted is what the engine would compute exactly.

The engine is played by vLLM's own reading of an adapter's configuration, or by verl's merged
weights in a model without an adapter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from refused import refused

torch = pytest.importorskip("torch", reason="torch is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")
verl = pytest.importorskip("verl.utils.fsdp_utils", reason="verl is not installed")
helper = pytest.importorskip("vllm.lora.peft_helper", reason="vLLM is not installed")

from transformers import LlamaConfig, LlamaForCausalLM, Qwen2_5_VLConfig  # noqa: E402

from tandem_plugin.errors import ConfigError  # noqa: E402
from tandem_verl.lora import check_adapter  # noqa: E402

IDS = torch.arange(3, 40).reshape(1, -1)
USUAL = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "o_proj"], "task_type": "CAUSAL_LM"}
BLOCKS = {"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["o_proj"]}


def base(is_tied: bool = False) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    layers = {"num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 64}
    biases = {"attention_bias": True, "tie_word_embeddings": is_tied, "initializer_range": 0.2}
    return LlamaForCausalLM(LlamaConfig(**shape, **layers, **biases)).eval()


@torch.no_grad()
def scored(model: Any) -> Any:
    return model(IDS).logits.log_softmax(-1)


@torch.no_grad()
def updated(options: Mapping[str, Any], is_tied: bool) -> Any:
    model = peft.get_peft_model(base(is_tied), peft.LoraConfig(**{**USUAL, **options})).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def sent(model: Any, is_tied: bool) -> Any:
    """A base to which vLLM would have added the adapter that verl sends."""
    config = model.peft_config["default"]
    scaling = helper.PEFTHelper.from_dict(config.to_dict()).vllm_lora_scaling_factor
    tensors = peft.get_peft_model_state_dict(model)
    plain = base(is_tied)
    for name, a in tensors.items():
        if not name.endswith("lora_A.weight"):
            assert name.endswith("lora_B.weight"), f"{name} is unsupported LoRA weight"
            continue
        layer = plain.get_submodule(name[len("base_model.model.") : -len(".lora_A.weight")])
        layer.weight.data += scaling * tensors[name.replace("lora_A", "lora_B")] @ a
    return plain


def merged(model: Any, is_tied: bool) -> Any:
    """A base with the weights that verl merges and sends."""
    verl._merge_or_unmerge_lora_(model, merge=True)
    weights = verl.normalize_peft_param_name(model.state_dict())
    plain = base(is_tied)
    plain.load_state_dict(weights, strict=True)
    return plain


def difference(options: Mapping[str, Any], is_merged: bool, is_tied: bool) -> float:
    """The largest difference in log probability between actor and engine; infinity for an error."""
    model = updated(options, is_tied)
    expected = scored(model)
    assert (expected - scored(base(is_tied))).abs().max() > 0.1
    try:
        engine = (merged if is_merged else sent)(model, is_tied)
    except (AssertionError, RuntimeError, NotImplementedError, ValueError):
        return float("inf")
    return float((scored(engine) - expected).abs().max())


def accepted(options: Mapping[str, Any], is_merged: bool, is_tied: bool, folder: Path) -> bool:
    config = peft.LoraConfig(**{**USUAL, **options})
    config.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": is_tied}))
    model = {"path": str(folder), "lora_rank": 4, "lora_adapter_path": str(folder)}
    try:
        check_adapter(OmegaConf.create({**model, "lora": {"merge": is_merged}}))
    except ConfigError as error:
        return error.code != "verl-adapter-differs"
    return True


OPTIONS = [
    ({}, True, True),
    ({"lora_dropout": 0.5}, True, True),
    ({"use_rslora": True}, True, True),
    ({"exclude_modules": ["o_proj"]}, True, True),
    ({"layers_to_transform": [1]}, True, True),
    ({"init_lora_weights": "gaussian"}, True, True),
    ({"init_lora_weights": "orthogonal"}, True, True),
    ({"init_lora_weights": "mica"}, True, True),
    ({"init_lora_weights": "pissa"}, False, True),
    ({"init_lora_weights": "olora"}, False, True),
    ({"bias": "all"}, False, True),
    ({"bias": "lora_only"}, False, True),
    ({"use_dora": True}, False, True),
    ({"rank_pattern": {"q_proj": 2}}, False, True),
    ({"alpha_pattern": {"q_proj": 2}}, False, True),
    ({"target_modules": [], "target_parameters": ["mlp.up_proj.weight"]}, False, True),
    ({"target_modules": ["lm_head", "q_proj"]}, False, True),
    ({"kasa_config": {}}, False, True),
    ({"monteclora_config": {}}, False, True),
    ({"velora_config": {}}, False, True),
    ({"fan_in_fan_out": True}, True, True),
    ({"lora_bias": True}, False, False),
    ({"use_bdlora": BLOCKS}, False, True),
    ({"modules_to_save": ["norm"]}, False, False),
    ({"trainable_token_indices": [3, 5]}, False, False),
    ({"alora_invocation_tokens": [3]}, False, False),
]
"""Options, and whether they are accepted when an adapter is sent, and when it is merged."""

EXACT = 1e-4


@pytest.mark.parametrize(("options", "is_sent", "is_merged"), OPTIONS, ids=str)
def test_adapter_is_accepted_if_the_engine_has_it_exactly(
    tmp_path: Path, options: dict[str, Any], is_sent: bool, is_merged: bool
) -> None:
    for merges, expected in ((False, is_sent), (True, is_merged)):
        found = difference(options, merges, False)
        print(f"{options} | {'merged' if merges else 'sent'} | {found:.1e}")
        assert accepted(options, merges, False, tmp_path) == expected
        if expected:
            assert found < EXACT


@pytest.mark.parametrize("end", ["lm_head", "embed_tokens"])
def test_end_of_a_model_with_one_weight_for_both_is_rejected_even_if_merged(
    tmp_path: Path, end: str
) -> None:
    options = {"target_modules": [end, "q_proj"]}
    assert difference(options, is_merged=True, is_tied=True) > 0.1
    assert not accepted(options, True, True, tmp_path)
    assert accepted({"target_modules": "all-linear"}, False, True, tmp_path)


def test_pattern_that_finds_the_head_is_rejected(tmp_path: Path) -> None:
    assert accepted({"target_modules": ".*_proj"}, False, False, tmp_path)
    assert not accepted({"target_modules": ".*(_proj|head)"}, False, False, tmp_path)


def test_adapter_that_verl_would_ignore_or_vllm_has_no_room_for_is_rejected(tmp_path: Path) -> None:
    peft.LoraConfig(**{**USUAL, "r": 8}).save_pretrained(tmp_path)
    model = {"path": "a/b", "lora_adapter_path": str(tmp_path)}
    with refused("verl-adapter-ignored", path=str(tmp_path)):
        check_adapter(OmegaConf.create({**model, "lora_rank": 0}))
    with refused("verl-adapter-differs", what="r=8, above lora_rank=7"):
        check_adapter(OmegaConf.create({**model, "lora_rank": 7}))
    check_adapter(OmegaConf.create({**model, "lora_rank": 8}))
    check_adapter(OmegaConf.create({**model, "lora_rank": 4, "lora": {"merge": True}}))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache with one snapshot of ``someone/model``."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c0ffee")
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    return snapshot


def test_adapter_in_the_hubs_cache_is_read_as_one_in_a_folder(hub: Path) -> None:
    model = {"path": "a/b", "lora_rank": 4, "lora_adapter_path": "someone/model"}
    for options in ({"init_lora_weights": "pissa"}, {"use_dora": True}, {"r": 8}):
        peft.LoraConfig(**{**USUAL, **options}).save_pretrained(hub)
        with refused("verl-adapter-differs"):
            check_adapter(OmegaConf.create(model))
    peft.LoraConfig(**USUAL).save_pretrained(hub)
    check_adapter(OmegaConf.create(model))


def test_base_in_the_hubs_cache_is_read_as_one_in_a_folder(hub: Path) -> None:
    (hub / "config.json").write_text('{"tie_word_embeddings": true}')
    model = {"path": "someone/model", "lora_rank": 4, "target_modules": ["lm_head"]}
    with refused("verl-adapter-differs", what="target_modules with lm_head"):
        check_adapter(OmegaConf.create({**model, "lora": {"merge": True}}))


@pytest.mark.parametrize("path", ["someone/other", "hdfs://models/adapter", "someone/model"])
def test_adapter_that_is_not_here_is_said_not_to_be_checked(
    hub: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_adapter(OmegaConf.create({"path": "a/b", "lora_rank": 4, "lora_adapter_path": path}))
    assert f"lora_adapter_path={path!r}" in caplog.text
    assert "was not checked" in caplog.text


@pytest.mark.parametrize(
    ("targets", "excluded", "layer"),
    [
        ("all-linear", None, "model.visual.blocks.0.attn.qkv"),
        ("all-linear", r".*\.blocks\..*", "model.visual.merger.mlp.0"),
        (["gate_proj", "up_proj"], None, "model.visual.blocks.0.mlp.gate_proj"),
        (["gate_proj"], ["visual.merger.mlp.0"], "model.visual.blocks.0.mlp.gate_proj"),
        ("all-linear", ".*visual.*", ""),
        (["q_proj", "v_proj"], None, ""),
        (r".*language_model.*_proj", None, ""),
    ],
)
def test_adapter_of_a_vision_tower_is_rejected(
    tmp_path: Path, targets: Any, excluded: Any, layer: str
) -> None:
    """Sent or merged: the engine would not have all of its layers."""
    heads, sizes = {"num_attention_heads": 2}, {"hidden_size": 32, "intermediate_size": 64}
    config = Qwen2_5_VLConfig(
        text_config={**sizes, **heads, "num_hidden_layers": 1, "vocab_size": 64},
        vision_config={**sizes, "num_heads": 2, "depth": 1, "out_hidden_size": 32},
        architectures=["Qwen2_5_VLForConditionalGeneration"],
    )
    config.save_pretrained(tmp_path)
    model = {"path": str(tmp_path), "lora_rank": 4, "target_modules": targets}
    model |= {"exclude_modules": excluded}
    for merges in (False, True):
        configuration = OmegaConf.create({**model, "lora": {"merge": merges}})
        if layer:
            with refused("verl-adapter-differs", what=f"target_modules with {layer}"):
                check_adapter(configuration)
        else:
            check_adapter(configuration)


def test_options_of_verls_own_are_checked_as_an_adapters() -> None:
    model = {"path": "a/b", "lora_rank": 4}
    for targets in ("all-linear", ["q_proj"], None):
        check_adapter(OmegaConf.create({**model, "target_modules": targets}))
    parameters = OmegaConf.create({**model, "target_parameters": ["mlp.experts.down_proj"]})
    with refused("verl-adapter-differs"):
        check_adapter(parameters)
    with refused("verl-adapter-differs", what="lora.type=dora"):
        check_adapter(OmegaConf.create({"path": "a/b", "lora": {"rank": 8, "type": "dora"}}))
    with refused("verl-adapter-differs", what="target_modules with lm_head"):
        check_adapter(OmegaConf.create({**model, "target_modules": ["lm_head"]}))
