"""What a driver sees of a run's models: their config.json, without loading anything."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.engine import local_models
from tandem_plugin.engine.local_models import LocalModel, check_before_start
from tandem_plugin.files.unified import TEXT_CLASSES

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")

LINEAR = {"layer_types": ["linear_attention", "full_attention"]}

SOUND: list[tuple[str, dict[str, Any]]] = [
    ("Qwen3ForCausalLM", {}),
    ("Qwen2ForCausalLM", {"layer_types": ["sliding_attention", "full_attention"]}),
    ("LlamaForCausalLM", {"is_encoder_decoder": False}),
    ("GraniteMoeHybridForCausalLM", {"layer_types": ["attention", "attention"]}),
    ("Qwen3_5ForCausalLM", LINEAR),
    ("Qwen3_5ForConditionalGeneration", {"text_config": LINEAR, "vision_config": {}}),
    ("Qwen2_5_VLForConditionalGeneration", {"vision_config": {}}),
    ("Gemma3ForConditionalGeneration", {"text_config": {}, "vision_config": {}}),
    ("Qwen3NextForCausalLM", {"full_attention_interval": 4}),
    ("FalconH1ForCausalLM", {}),
    ("GraniteMoeHybridForCausalLM", {"layer_types": ["mamba", "attention"]}),
    ("TandemQwen3ForCausalLM", {}),  # of a checkpoint saved by an engine
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Qwen2VLForConditionalGeneration", {"vision_config": {}}, "multimodal-model-unsupported"),
    ("Qwen3VLMoeForConditionalGeneration", {"vision_config": {}}, "multimodal-model-unsupported"),
    ("Qwen2_5OmniModel", {"thinker_config": {}}, "multimodal-model-unsupported"),
    (
        "Qwen3OmniMoeForConditionalGeneration",
        {"thinker_config": {}},
        "multimodal-model-unsupported",
    ),
    ("Gemma3nForConditionalGeneration", {"vision_config": {}}, "multimodal-model-unsupported"),
    ("InternVLChatModel", {"vision_config": {}}, "multimodal-model-unsupported"),
    ("Phi4MMForCausalLM", {"embd_layer": {}}, "multimodal-model-unsupported"),
    ("Phi3VForCausalLM", {"embd_layer": {}}, "multimodal-model-unsupported"),
    ("Qwen2AudioForConditionalGeneration", {"audio_config": {}}, "multimodal-model-unsupported"),
    (
        "WhisperForConditionalGeneration",
        {"is_encoder_decoder": True},
        "encoder-decoder-unsupported",
    ),
    ("MambaForCausalLM", {"state_size": 16}, "attention-free-model-unsupported"),
    ("Qwen3ForCausalLM", {"is_encoder_decoder": True}, "encoder-decoder-unsupported"),
    ("", {}, "senior-architecture-missing"),
]


UNIFIED = TEXT_CLASSES.keys()
"""Checkpoints whose text models are read alone."""


def checkpoint(folder: Path, architecture: str, **settings: Any) -> str:
    folder.mkdir(exist_ok=True)
    named = {"architectures": [architecture]} if architecture else {}
    (folder / "config.json").write_text(json.dumps({**named, **settings}))
    return str(folder)


def check(senior: str | None, junior: str | None = None, **options: Any) -> None:
    check_before_start(TandemConfig(junior=junior), senior, options.get)


@pytest.mark.parametrize(("architecture", "settings"), SOUND)
def test_text_models_pass(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", architecture, **settings)
    check(model)
    check(model, model)


@pytest.mark.parametrize(("architecture", "settings", "code"), REFUSED)
def test_model_that_the_engine_would_reject_is_rejected_before_it_is_loaded(
    architecture: str, settings: dict[str, Any], code: str, tmp_path: Path
) -> None:
    model = checkpoint(tmp_path / "model", architecture, **settings)
    with refused(code):
        check(model)
    if code != "senior-architecture-missing":  # of the senior alone
        with refused(code):
            check(None, model)
    check(model, hf_overrides={"architectures": ["Qwen3ForCausalLM"]})


@pytest.mark.parametrize(
    ("senior", "junior", "code"),
    [
        ("Qwen2_5_VLForConditionalGeneration", None, None),
        ("Qwen3VLForConditionalGeneration", "Qwen3VLForConditionalGeneration", None),
        ("Qwen3VLForConditionalGeneration", "Qwen3ForCausalLM", "image-family-uncompared"),
        ("Qwen3ForCausalLM", None, "image-family-uncompared"),
        ("Gemma3ForConditionalGeneration", None, "image-family-uncompared"),
        ("Idefics3ForConditionalGeneration", None, "image-family-untrained"),
        ("SmolVLMForConditionalGeneration", None, "image-family-untrained"),
        (
            "Qwen3VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration",
            "image-classes-differ",
        ),
    ],
)
def test_models_for_images_are_read_with_their_towers(
    senior: str,
    junior: str | None,
    code: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.29.0")
    models = [
        name and checkpoint(tmp_path / name, name, text_config={}, vision_config={})
        for name in (senior, junior)
    ]
    with refused(code) if code else nullcontext():
        check_before_start(TandemConfig(junior=models[1], images=True), models[0], {}.get)


ATTENTION = ("Qwen3ForCausalLM", {})
MICRO = ("GraniteMoeHybridForCausalLM", {"layer_types": ["attention", "attention"]})
DELTA = ("Qwen3_5ForConditionalGeneration", {"text_config": LINEAR})
MAMBA = ("NemotronHForCausalLM", {})
DRAFTS: dict[str, Any] = {"mode": "speculative"}
ALLOWED = {**DRAFTS, "unproven": ["drafts_for_delta_net"]}


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("JambaForCausalLM", {"attn_layer_period": 8, "mamba_d_state": 16}),
        ("Zamba2ForCausalLM", {"mamba_d_state": 64}),
        ("OwnHybridForCausalLM", LINEAR),
    ],
)
def test_states_of_a_family_that_was_not_tested_are_rejected(
    architecture: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.29.0")
    senior = checkpoint(tmp_path / "senior", *DELTA[:1], **DELTA[1])
    other = checkpoint(tmp_path / "other", architecture, **settings)
    for models in ((other, None), (senior, other)):
        with refused("hybrid-family-untested", architecture=architecture, model=other):
            check(*models)


@pytest.mark.parametrize(
    ("senior", "junior", "tandem", "options", "code"),
    [
        (DELTA, MAMBA, {}, {}, None),
        (MAMBA, ATTENTION, {}, {"mamba_cache_mode": "align", "enable_lora": False}, None),
        (ATTENTION, DELTA, {}, {}, "hybrid-junior-attention-senior"),
        (MICRO, MAMBA, {}, {}, "hybrid-junior-attention-senior"),
        (MICRO, MICRO, DRAFTS, {}, None),
        (DELTA, ATTENTION, {}, {"enable_lora": True}, "hybrid-setting-unsupported"),
        (DELTA, DELTA, {}, {"mamba_cache_mode": "all"}, "hybrid-setting-unsupported"),
        (MAMBA, MAMBA, {}, {"use_replayssm": True}, "hybrid-setting-unsupported"),
        (MAMBA, ATTENTION, ALLOWED, {}, "hybrid-speculative-unsupported"),
        (DELTA, DELTA, ALLOWED, {}, "hybrid-speculative-unsupported"),
        (DELTA, MAMBA, ALLOWED, {}, "hybrid-speculative-unsupported"),
        (DELTA, ATTENTION, DRAFTS, {}, "hybrid-speculative-unproven"),
        (DELTA, ATTENTION, ALLOWED, {}, None),
    ],
)
def test_recurrent_states_are_rejected_where_they_would_fail_or_be_wrong(
    senior: tuple[str, dict[str, Any]],
    junior: tuple[str, dict[str, Any]],
    tandem: dict[str, Any],
    options: dict[str, Any],
    code: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {
        name: checkpoint(tmp_path / name, architecture, **settings)
        for name, (architecture, settings) in (("senior", senior), ("junior", junior))
    }
    config = TandemConfig(junior=models["junior"], **tandem)
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.29.0")
    with refused(code) if code else nullcontext():
        check_before_start(config, models["senior"], options.get)
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.27.1")
    if "mode" not in tandem and (senior, junior) != (MICRO, MICRO):
        with refused("hybrid-vllm-too-old", version="0.27.1"):
            check_before_start(config, models["senior"], options.get)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline-parallel-unsupported"),
        ({"pipeline_parallel_size": "2"}, "pipeline-parallel-unsupported"),
        ({"speculative_config": {"method": "ngram"}}, "speculative-config-unsupported"),
        ({"kv_transfer_config": {}}, "kv-transfer-unsupported"),
        ({"enable_prompt_embeds": True}, "prompt-embeds-unsupported"),
    ],
)
def test_engine_option_is_rejected_without_an_engine(options: dict[str, Any], code: str) -> None:
    check("some/model", pipeline_parallel_size=1, enable_prompt_embeds=False)
    with refused(code):
        check("some/model", **options)


@pytest.mark.parametrize(
    ("version", "options", "code"),
    [
        ("0.24.0", {}, "speculative-vllm-too-old"),
        ("0.29.0", {"logits_processors": ["a.B"]}, "speculative-logits-processors"),
        ("0.29.0", {"enable_lora": True}, "speculative-setting-unsupported"),
        ("0.29.0", {"enable_dbo": True}, "speculative-setting-unsupported"),
    ],
)
def test_what_drafting_does_not_support_is_rejected_without_an_engine(
    version: str, options: dict[str, Any], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "running_version", lambda package: version)
    lockstep, drafting = TandemConfig(), TandemConfig(mode="speculative")
    check_before_start(lockstep, "some/model", options.get)
    with refused(code):
        check_before_start(drafting, "some/model", options.get)
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.29.0")
    check_before_start(drafting, "some/model", {"enable_lora": False}.get)
    monkeypatch.setattr(local_models, "running_version", lambda package: None)  # elsewhere alone
    check_before_start(drafting, "some/model", {}.get)


@pytest.mark.parametrize(
    ("junior", "code"),
    [
        ("/nonexistent/model", "junior-not-checkpoint"),
        ("./nowhere", "junior-not-checkpoint"),
        ("~/no-such-model-here", "junior-not-checkpoint"),
        ("{folder}", "junior-not-checkpoint"),
        ("runs/of/nobody/senior", "model-missing"),
        ("{folder}/model.safetensors", "junior-not-checkpoint"),
    ],
)
def test_junior_that_does_not_exist_is_rejected(junior: str, code: str, tmp_path: Path) -> None:
    with refused(code):
        check(None, junior.format(folder=tmp_path))


@pytest.mark.parametrize("role", ["senior", "junior"])
def test_weights_cloned_without_git_lfs_are_rejected(role: str, tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", "Qwen3ForCausalLM")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 11422654\n"
    (tmp_path / "model" / "model.safetensors").write_text(pointer)
    with refused("model-file-unreadable", what=role):
        check(model if role == "senior" else None, model if role == "junior" else None)


def test_what_is_not_on_this_machine_or_cannot_be_read_is_left_to_the_engine(
    tmp_path: Path,
) -> None:
    for model in ("nobody/model", "hdfs://models/vl", "/nowhere", "gpt2", "a--b/c..d", "~nobody/m"):
        check(model)
    check("owner/model", "owner/another")
    for text in ("", "[]", "{", '{"architectures": "Qwen2VLForConditionalGeneration"}'):
        (tmp_path / "config.json").write_text(text)
        check(str(tmp_path))


def test_model_of_the_hub_is_read_from_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--owner--vl"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    checkpoint(snapshot, "Qwen3VLForConditionalGeneration", vision_config={})
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for senior, junior in (("owner/vl", None), (None, "owner/vl")):
        with refused("multimodal-model-unsupported", model="owner/vl"):
            check(senior, junior)
    check("owner/vl", revision="another")
    check("owner/other")


def test_vllm_is_not_imported(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "model", "Qwen3ForCausalLM")
    program = (
        "import sys; from tandem_plugin import TandemConfig\n"
        "from tandem_plugin.engine.local_models import LocalModel, check_before_start\n"
        f"check_before_start(TandemConfig(), {model!r}, {{}}.get)\n"
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_what_files_say_of_a_model_is_what_vllm_says_of_it(tmp_path: Path) -> None:
    from vllm.model_executor.models import registry

    kinds = [*SOUND, *((name, settings) for name, settings, _ in REFUSED)]
    known = [one for one in kinds if one[0] in registry._VLLM_MODELS and one[0] not in UNIFIED]
    assert len(known) > 10
    for architecture, settings in known:
        model = LocalModel.read(checkpoint(tmp_path / "model", architecture, **settings))
        assert model is not None
        if not model.is_encoder_decoder:
            is_multimodal = architecture in registry._MULTIMODAL_MODELS
            assert model.is_multimodal_model == is_multimodal, architecture


def test_quantised_junior_needs_a_tested_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, quantised = TandemConfig(), TandemConfig(junior_quantization="fp8")
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.28.1")
    check_before_start(plain, "some/model", {}.get)
    with refused("junior-quantization-untested", version="0.28.1"):
        check_before_start(quantised, "some/model", {}.get)
    monkeypatch.setattr(local_models, "running_version", lambda package: "0.29.0")
    check_before_start(quantised, "some/model", {}.get)
