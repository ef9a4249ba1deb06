"""Which adapters are sent alone, which are merged, and which are rejected."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from refused import refused

torch = pytest.importorskip("torch", reason="torch is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")
pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

from transformers import (  # noqa: E402
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from tandem_plugin import TandemConfig  # noqa: E402
from tandem_trl import engine, lora  # noqa: E402


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A small checkpoint by whether its embedding is its head."""
    return {is_tied: saved(tmp_path_factory.mktemp("base"), is_tied) for is_tied in (False, True)}


def saved(folder: Path, is_tied: bool) -> Path:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    layers = {"num_hidden_layers": 2, "num_key_value_heads": 1, "vocab_size": 64}
    config = LlamaConfig(**shape, **layers, tie_word_embeddings=is_tied, eos_token_id=2)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def adapted(base: Path, **options: Any) -> Any:
    usual = {"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.get_peft_model(model, peft.LoraConfig(**{**usual, **options}))


def arguments(
    model: Any, settings: Mapping[str, Any] | None = None, /, is_fsdp: bool = False, **given: Any
) -> dict[str, Any]:
    """The engine arguments for an adapter; those of an adapter that is sent alone name LoRA."""
    generation = SimpleNamespace(
        model=model,
        _dist=SimpleNamespace(is_fsdp=is_fsdp, gather_params=lambda weights: nullcontext()),
        _iter_named_params=model.named_parameters,
        accelerator=SimpleNamespace(is_main_process=True),
    )
    config = TandemConfig.from_mapping({"schedule": "word", **(settings or {})})
    usual = {"model": model.name_or_path, "quantization": None, "enable_sleep_mode": False}
    lora.check_adapter(generation.model)  # at the start of the run
    return engine._how_to_send(generation, {**usual, **given}, config)[1]


@pytest.mark.parametrize(
    ("options", "rank"),
    [
        ({}, 8),
        ({"r": 12, "use_rslora": True, "lora_dropout": 0.5}, 16),
        ({"target_modules": "all-linear", "exclude_modules": ["k_proj"]}, 8),
        ({"r": 513}, None),
        ({"use_dora": True}, None),
        ({"rank_pattern": {"q_proj": 2}}, None),
        ({"alpha_pattern": {"q_proj": 2}}, None),
        ({"target_modules": ["q_proj", "lm_head"]}, None),
        ({"target_modules": ["embed_tokens"]}, None),
        ({"modules_to_save": ["norm"]}, None),
        ({"trainable_token_indices": [3]}, None),
        ({"target_modules": [], "target_parameters": ["q_proj.weight"]}, None),
        ({"init_lora_weights": "pissa"}, None),
    ],
)
def test_adapter_that_vllm_would_not_apply_as_peft_does_is_merged(
    bases: dict[bool, Path], options: dict[str, Any], rank: int | None
) -> None:
    expected = {} if rank is None else {"enable_lora": True, "max_lora_rank": rank}
    assert arguments(adapted(bases[False], **options)) == expected


@pytest.mark.parametrize(
    ("options", "is_sent"),
    [
        ({"target_modules": "all-linear"}, False),
        ({"target_modules": "all-linear", "exclude_modules": ".*visual.*"}, True),
        ({"target_modules": ["q_proj", "visual.merger.linear_fc1"]}, False),
        ({"target_modules": ["q_proj"]}, True),
    ],
)
def test_adapter_of_a_vision_tower_is_merged(
    tmp_path: Path, options: dict[str, Any], is_sent: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine would have its layers of the language model alone."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 64}
    text = {**sizes, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    tower = {"hidden_size": 16, "num_heads": 2, "depth": 1, "deepstack_visual_indexes": [0]}
    config = Qwen3VLConfig(
        text_config={**text, "head_dim": 8},
        vision_config={**tower, "intermediate_size": 32, "out_hidden_size": 16},
    )
    Qwen3VLForConditionalGeneration(config).save_pretrained(tmp_path)
    model = Qwen3VLForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    adapter = peft.LoraConfig(r=4, task_type="CAUSAL_LM", **options)
    assert bool(arguments(peft.get_peft_model(model, adapter))) == is_sent
    assert ("LoRA outside the language model" in capsys.readouterr().err) != is_sent


def test_base_is_held_twice_where_the_adapter_cannot_be_sent_alone(
    bases: dict[bool, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = adapted(bases[False])
    assert not arguments(model, is_fsdp=True)
    assert not arguments(model, quantization="bitsandbytes")
    assert not arguments(model, enable_sleep_mode=True)
    assert not arguments(model, enable_lora=False)
    assert not arguments(model, {"mode": "speculative"})
    assert not arguments(model, {"junior": "another/one"})
    lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("tandem:")]
    assert lines[0] == "tandem: syncs send all weights with the adapter merged, because of FSDP."
    assert len(lines) == 6


def test_base_that_is_not_the_checkpoint_any_more_is_not_the_junior(
    bases: dict[bool, Path],
) -> None:
    """As after an adapter that was merged into it, or LoftQ."""
    model = adapted(bases[False])
    assert arguments(model)
    with torch.no_grad():
        model.get_base_model().model.norm.weight[3] += 1
    assert not arguments(model)
    bare = adapted(bases[False])
    assert not arguments(bare, model=str(bases[True]))


def test_more_than_the_adapter_that_is_trained_is_sent(bases: dict[bool, Path]) -> None:
    model = adapted(bases[False])
    model.get_base_model().model.norm.requires_grad_(True)
    assert not arguments(model)
    other = LlamaForCausalLM.from_pretrained(bases[False], dtype=torch.float32)
    config = peft.LoraConfig(r=4, target_modules=["q_proj"])
    assert not arguments(peft.get_peft_model(other, config, adapter_name="own"))


def test_adapter_with_its_reference_beside_it_is_sent_alone(bases: dict[bool, Path]) -> None:
    """TRL adds the adapter ``ref`` to a model that comes with an adapter, for its KL term."""
    model = adapted(bases[False])
    model.add_adapter("ref", model.peft_config["default"])
    assert arguments(model)
    model.base_model.set_adapter(["default", "ref"])
    assert not arguments(model)


def test_model_without_an_adapter_is_left_alone(
    bases: dict[bool, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not arguments(LlamaForCausalLM.from_pretrained(bases[False]))
    assert "tandem" not in capsys.readouterr().err


PROMPTS = [
    peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
    peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
]


@pytest.mark.parametrize("config", PROMPTS)
def test_prompt_that_is_trained_is_rejected(bases: dict[bool, Path], config: Any) -> None:
    model = LlamaForCausalLM.from_pretrained(bases[False])
    with refused("trl-setting-unsupported", what=type(config).__name__):
        arguments(peft.get_peft_model(model, config))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"lora_bias": True}, "lora_bias=True for a layer without a bias"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"alora_invocation_tokens": [3, 4]}, "ALoraLinearVariant"),
    ],
)
def test_adapter_that_can_be_neither_applied_nor_merged_is_rejected(
    bases: dict[bool, Path], options: dict[str, Any], what: str
) -> None:
    model = adapted(bases[False], **options)
    with refused("trl-setting-unsupported") as caught:
        arguments(model)
    assert str(caught.value).startswith(what)


def test_adapter_of_experts_is_rejected() -> None:
    shape = {"hidden_size": 16, "intermediate_size": 32, "moe_intermediate_size": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 64}
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **heads, **experts))
    options = {"r": 4, "target_modules": ["q_proj"]}
    lora.check_adapter(peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(**options)))
    options["target_parameters"] = ["mlp.experts.down_proj"]
    with refused(
        "trl-setting-unsupported",
        what="target_parameters of base_model.model.model.layers.0.mlp.experts",
    ):
        lora.check_adapter(peft.get_peft_model(model, peft.LoraConfig(**options)))


def test_adapter_beside_pefts_own_model_is_rejected(bases: dict[bool, Path]) -> None:
    model = LlamaForCausalLM.from_pretrained(bases[False])
    model.add_adapter(peft.LoraConfig(r=4, target_modules=["q_proj"]))
    with refused("trl-setting-unsupported"):
        arguments(model)


ENDS = ["embed_tokens", "lm_head"]


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"target_modules": ["lm_head"]}, "head"),
        ({"target_modules": ["embed_tokens"]}, "embedding"),
        ({"target_modules": ENDS, "ensure_weight_tying": True}, "embedding and head"),
        ({"modules_to_save": ["embed_tokens"]}, "embedding"),
        ({"modules_to_save": ["lm_head"]}, "head"),
        ({"modules_to_save": ENDS}, "embedding and head"),
        ({"trainable_token_indices": {"lm_head": [3]}}, "head"),
    ],
)
def test_adapter_that_unties_embedding_and_head_is_rejected(
    bases: dict[bool, Path], options: dict[str, Any], layers: str
) -> None:
    with refused("trl-tied-adapter-layers", layers=layers):
        arguments(adapted(bases[True], **options))
    arguments(adapted(bases[False], **options))


@pytest.mark.parametrize(
    "options",
    [
        {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
        {"modules_to_save": ENDS, "ensure_weight_tying": True},
        {"trainable_token_indices": [3, 5]},
        {"target_modules": "all-linear"},
    ],
)
def test_adapter_that_keeps_embedding_and_head_one_is_not_rejected(
    bases: dict[bool, Path], options: dict[str, Any]
) -> None:
    arguments(adapted(bases[True], **options))


def test_weight_that_an_adapter_hides_from_a_sync_stops_the_run(bases: dict[bool, Path]) -> None:
    model = adapted(bases[False])
    names = lora._names_without_adapter(model.get_base_model())
    weights = [(name, None) for name in sorted(names)]
    assert list(lora._weights_of_names(lambda: iter(weights), names, ["default"])) == weights
    hidden = [("own." + weights[0][0], None), *weights[1:]]
    with refused("trl-sync-incomplete", names=weights[0][0], count=1):
        list(lora._weights_of_names(lambda: iter(hidden), names, ["default"]))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, None),
        ({"use_rslora": True}, None),
        ({"init_lora_weights": "pissa"}, "which is not as in the checkpoint"),
        ({"init_lora_weights": "olora"}, "which is not as in the checkpoint"),
        ({"use_dora": True}, "training of"),
        ({"modules_to_save": ["lm_head"]}, "training of"),
    ],
)
def test_adapter_that_a_server_would_not_apply_as_peft_does_is_not_sent_alone(
    bases: dict[bool, Path], options: dict[str, Any], problem: str | None
) -> None:
    """TRL's own check accepts PiSSA and OLoRA, which change the base."""
    model = adapted(bases[False], **options)
    if problem is None:
        lora.check_sent_alone(model, str(bases[False]))
        return
    with refused("trl-adapter-sent-differs") as caught:
        lora.check_sent_alone(model, str(bases[False]))
    assert problem in str(caught.value.fields["problem"])


def test_sharded_base_is_not_compared_and_the_log_says_so(
    bases: dict[bool, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A process has parts of its weights alone, which differ from the checkpoint's."""
    model = adapted(bases[False])
    weight = next(model.parameters())
    weight.ds_id = 0
    weight.data = weight.data[:0]
    lora.check_sent_alone(model, str(bases[False]))
    assert "base was not compared" in capsys.readouterr().err


def test_every_prompt_is_answered_with_the_adapter_that_was_sent_last() -> None:
    """Its base alone, the junior, would answer otherwise, and replay without a difference."""
    calls: list[tuple[list[Any], list[Any], dict[str, Any]]] = []

    class LLM:
        def generate(self, prompts: Any, sampling_params: Any, **options: Any) -> list[Any]:
            calls.append((prompts, sampling_params, options))
            return [SimpleNamespace(prompt_token_ids=list(p["prompt_token_ids"])) for p in prompts]

    class Params:
        extra_args = MappingProxyType({"own": 1})

        def clone(self) -> Params:
            return Params()

    llm = engine.LLMInTandem(LLM())
    prompts = [{"prompt_token_ids": engine.TandemPrompt([1, 2], None, {"seed": n})} for n in (5, 6)]
    for adapter in (None, "first", "second"):
        llm.adapter = adapter
        assert llm.generate([*prompts, {"prompt_token_ids": [3]}], Params(), use_tqdm=False)
        sent, params, options = calls[-1]
        assert options == {"lora_request": adapter, "use_tqdm": False}
        assert [type(prompt["prompt_token_ids"]) for prompt in sent] == [list] * 3
        assert [one.extra_args for one in params] == [
            {"own": 1, "tandem": {"seed": 5}},
            {"own": 1, "tandem": {"seed": 6}},
            {"own": 1},  # of no row, which the engine rejects
        ]
