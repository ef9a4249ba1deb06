"""What a tandem engine refuses before it loads anything, and what it leaves alone."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import vllm
from packaging.version import Version
from refused import refused
from support.drafting import has_drafting
from support.engine import on_runner
from support.families import make_family
from support.models import make_model, make_tokenizer
from support.speculation import needs_drafting
from tokenizers import Tokenizer, processors


def configure(checkpoint: Path, tandem: Any, **arguments: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    settings = {"max_model_len": 256, "enforce_eager": True, "dtype": "float32"} | arguments
    extra = {} if tandem is None else {"additional_config": {"tandem": tandem}}
    args = EngineArgs(model=str(checkpoint), **settings, **extra)
    return args.create_engine_config()


@pytest.mark.parametrize(
    ("tandem", "code"),
    [
        ({"schedule": "chess"}, "plugin-name-unknown"),
        ({"junior": "/nowhere/junior"}, "junior-not-checkpoint"),
        ({"junior": ["a", "b"]}, "setting-invalid"),
    ],
)
def test_bad_settings_are_refused(checkpoints: dict[str, Path], tandem: Any, code: str) -> None:
    with refused(code):
        configure(checkpoints["senior"], tandem)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline-parallel-unsupported"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            "speculative-config-unsupported",
        ),
        ({"async_scheduling": True}, "async-scheduling-unsupported"),
        ({"enable_lora": True, "load_format": "dummy"}, "lora-dummy-weights"),
        (
            {"enable_lora": True, "lora_target_modules": ["q_proj", "lm_head"]},
            "lora-modules-unsupported",
        ),
        ({"enable_prompt_embeds": True}, "prompt-embeds-unsupported"),
        (
            {"kv_transfer_config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}},
            "kv-transfer-unsupported",
        ),
    ],
)
def test_serving_options_that_do_not_go_with_tandem_are_refused(
    checkpoints: dict[str, Path], arguments: dict[str, Any], code: str
) -> None:
    with refused(code):
        configure(checkpoints["senior"], {"schedule": "word"}, **arguments)


def test_front_end_in_rust_is_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    with refused("rust-frontend-unsupported"):
        configure(checkpoints["senior"], {"schedule": "word"})
    assert configure(checkpoints["senior"], None)


def test_junior_that_reads_fewer_tokens_than_the_engine_is_refused(
    checkpoints: dict[str, Path],
) -> None:
    longer = {"hf_overrides": {"max_position_embeddings": 4096}, "max_model_len": 2048}
    with refused("junior-engine-incompatible", max_model_len=2048) as caught:
        configure(checkpoints["senior"], {"junior": str(checkpoints["other"])}, **longer)
    assert "_embeddings=1024" in str(caught.value)


def test_junior_that_keeps_state_outside_attention_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, tokenizer: Any
) -> None:
    from transformers import Mamba2Config

    tokenizer.save_pretrained(tmp_path)
    config = Mamba2Config(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_heads=4, head_dim=32
    )
    config.architectures = ["Mamba2ForCausalLM"]
    config.save_pretrained(tmp_path)
    with refused("attention-free-model-unsupported"):
        configure(checkpoints["senior"], {"junior": str(tmp_path)})


@pytest.fixture(scope="module")
def granite(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """Mamba 2 beside attention."""
    return make_family(tmp_path_factory.mktemp("granite"), "granite4", seed=0, tokenizer=tokenizer)


@needs_drafting  # vLLM 0.29, as recurrent states do
@pytest.mark.parametrize(
    ("senior", "tandem", "arguments", "code"),
    [
        ("senior", {}, {}, "hybrid-junior-attention-senior"),
        ("granite", {}, {"enable_lora": True}, "hybrid-setting-unsupported"),
        ("granite", {}, {"mamba_cache_mode": "all"}, "hybrid-setting-unsupported"),
        ("granite", {"mode": "speculative"}, {}, "hybrid-speculative-unsupported"),
    ],
)
def test_recurrent_states_are_refused_where_they_would_fail_or_be_wrong(
    checkpoints: dict[str, Path],
    granite: Path,
    senior: str,
    tandem: dict[str, Any],
    arguments: dict[str, Any],
    code: str,
) -> None:
    models = checkpoints | {"granite": granite}
    with on_runner("v2" if tandem else "v1"), refused(code):
        configure(models[senior], {"junior": str(granite), **tandem}, **arguments)
    for junior in (None, str(checkpoints["senior"])):
        assert configure(granite, {"junior": junior})


ROPE = {"rope_type": "default", "rope_theta": 123.0}
OVERRIDES = {"rope_parameters": ROPE, "max_position_embeddings": 4096, "head_dtype": "float32"}
LOCKSTEP_OR_DRAFTING = [
    ("v1", "lockstep"),
    pytest.param("v2", "speculative", marks=needs_drafting),
]


def junior_of(config: Any) -> Any:
    """The junior's model configuration, as a worker makes it."""
    from tandem_plugin.engine.junior import junior_model_config

    return junior_model_config(pickle.loads(pickle.dumps(config)))


@pytest.mark.parametrize(("runner", "mode"), LOCKSTEP_OR_DRAFTING)
@pytest.mark.parametrize("named", [None, "{}/../senior"])
def test_junior_with_the_seniors_checkpoint_is_read_as_the_senior_is(
    checkpoints: dict[str, Path], runner: str, mode: str, named: str | None
) -> None:
    senior = str(checkpoints["senior"])
    tandem = {"mode": mode, "junior": named and named.format(senior)}
    with on_runner(runner):
        config = configure(
            checkpoints["senior"],
            tandem,
            hf_overrides=OVERRIDES,
            max_model_len=2048,
            dtype="bfloat16",
            quantization="fp8",
            revision="refs/pr/1",
        )
    models = [config.model_config, junior_of(config)]
    if mode == "speculative":
        models.append(config.speculative_config.draft_model_config)
    assert models[-1].hf_config.architectures == ["Qwen3ForCausalLM"]
    for model in models:
        assert model.model == senior
        assert model.hf_config.rope_parameters == ROPE
        assert model.hf_config.max_position_embeddings == 4096
        assert (model.dtype, model.head_dtype) == (torch.bfloat16, torch.float32)
        assert (model.max_model_len, model.quantization) == (2048, "fp8")
        assert model.revision == config.model_config.revision == "refs/pr/1"


def test_overrides_by_a_function_reach_the_junior_with_the_seniors_checkpoint(
    checkpoints: dict[str, Path],
) -> None:
    def override(hf_config: Any) -> Any:
        hf_config.rope_parameters = ROPE
        return hf_config

    from tandem_plugin.engine.junior import junior_model_config

    config = configure(checkpoints["senior"], {}, hf_overrides=override)
    junior = junior_model_config(config)
    assert junior.hf_config.architectures == ["Qwen3ForCausalLM"]
    assert junior.hf_config.rope_parameters == ROPE


def test_quantisation_of_weights_to_come_is_not_the_juniors(checkpoints: dict[str, Path]) -> None:
    """A trainer that starts from dummies sends quantised weights; the checkpoint's are not."""
    quantised = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    arguments = {"hf_overrides": {"quantization_config": quantised}, "dtype": "bfloat16"}
    for load_format, expected in (("dummy", None), ("auto", "fp8")):
        config = configure(checkpoints["senior"], {}, load_format=load_format, **arguments)
        assert config.model_config.quantization == "fp8"
        assert junior_of(config).quantization == expected


@pytest.mark.parametrize(("runner", "mode"), LOCKSTEP_OR_DRAFTING)
def test_junior_with_another_checkpoint_keeps_its_own_configuration(
    checkpoints: dict[str, Path], runner: str, mode: str
) -> None:
    """What the engine computes with is the junior's as well: types and length."""
    tandem = {"mode": mode, "junior": str(checkpoints["other"])}
    with on_runner(runner):
        config = configure(
            checkpoints["senior"],
            tandem,
            hf_overrides=OVERRIDES,
            max_model_len=512,
            dtype="bfloat16",
            quantization="fp8",
        )
    models = [junior_of(config)]
    if mode == "speculative":
        models.append(config.speculative_config.draft_model_config)
    for model in models:
        assert model.model == str(checkpoints["other"])
        assert model.hf_config.rope_parameters["rope_theta"] != ROPE["rope_theta"]
        assert model.hf_config.max_position_embeddings == 1024
        assert (model.dtype, model.head_dtype) == (torch.bfloat16, torch.float32)
        assert (model.max_model_len, model.quantization) == (512, None)


def test_model_runner_v2_is_bound_without_a_logits_processor(
    checkpoints: dict[str, Path],
) -> None:
    from tandem_plugin.engine.runners import check_engine

    with on_runner("v2"):
        config = configure(checkpoints["senior"], {"schedule": "word"}, async_scheduling=True)
        assert not config.model_config.logits_processors
        check_engine(config)


def test_models_in_breakable_graphs_are_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that vLLM has them under; not where the user has switched these graphs off."""
    from vllm.config import vllm as config

    from tandem_plugin.engine.junior import junior_model_config
    from tandem_plugin.engine.unsupported import check_config, check_junior

    engine = configure(checkpoints["senior"], {"junior": str(checkpoints["other"])})
    names = frozenset({"Qwen3ForCausalLM"})
    monkeypatch.setattr(config, "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES", names, raising=False)
    monkeypatch.delenv("VLLM_USE_BREAKABLE_CUDAGRAPH", raising=False)
    with refused("breakable-graphs-untested", architecture="Qwen3ForCausalLM"):
        check_config(engine)
    with refused("breakable-graphs-untested", model=str(checkpoints["other"])):
        check_junior(engine, junior_model_config(engine))
    monkeypatch.setenv("VLLM_USE_BREAKABLE_CUDAGRAPH", "0")
    check_config(engine)
    check_junior(engine, junior_model_config(engine))


def test_speculative_mode_is_refused_on_an_older_vllm(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_drafting():
        monkeypatch.setattr(vllm, "__version__", "0.27.1")
    with on_runner("v2"), refused("speculative-vllm-too-old"):
        configure(checkpoints["senior"], {"mode": "speculative"})


@needs_drafting
def test_model_runner_v2_is_vllms_own_choice_for_speculative_mode(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody sets the variable, as on a GPU; a user's own draft model is judged by vLLM."""
    # The variable is back before on_runner takes it away: else it would stay for every later test.
    with on_runner("v2"), monkeypatch.context() as unset:
        config = configure(checkpoints["senior"], {"mode": "speculative"})
        unset.delenv("VLLM_USE_V2_MODEL_RUNNER")
        assert config.use_v2_model_runner
        config.additional_config = {}
        unsupported = inspect.unwrap(type(config)._get_v2_model_runner_unsupported_features)
        assert config.use_v2_model_runner is not bool(unsupported(config))


@needs_drafting
def test_speculative_mode_is_refused_on_runner_v1(checkpoints: dict[str, Path]) -> None:
    with (
        on_runner("v1"),
        refused("speculative-runner-v1"),
    ):
        configure(checkpoints["senior"], {"mode": "speculative"})


@needs_drafting
def test_speculative_mode_makes_the_junior_vllms_draft_model(checkpoints: dict[str, Path]) -> None:
    from tandem_plugin.engine.runners import check_engine

    tandem = {"mode": "speculative", "drafts": 6, "junior": str(checkpoints["other"])}
    with on_runner("v2"):
        config = configure(checkpoints["senior"], tandem, async_scheduling=True)
        check_engine(config)
    drafting = config.speculative_config
    assert (drafting.method, drafting.num_speculative_tokens) == ("draft_model", 6)
    assert drafting.draft_sample_method == "probabilistic"
    assert drafting.draft_model_config.model == str(checkpoints["other"])
    assert config.model_config.architectures == ["TandemSpeculativeQwen3ForCausalLM"]
    assert config.scheduler_config.scheduler_cls is None


@needs_drafting
def test_a_table_of_drafts_is_vllms_own(checkpoints: dict[str, Path]) -> None:
    """Its scheduler and graphs go by it; keys are text where settings come as JSON."""
    from tandem_plugin.engine.speculative.speculator import draft_lengths

    settings = {"mode": "speculative", "drafts": {"1": 6, "3": 2, "40": 0}}
    with on_runner("v2"):
        config = configure(checkpoints["senior"], settings, max_num_seqs=50)
        lengths = draft_lengths(config)
        single = configure(checkpoints["senior"], {"mode": "speculative", "drafts": {1: 3, 8: 3}})
    assert [n for (n,) in lengths[1:]] == [6] * 2 + [2] * 37 + [0] * 11
    assert config.speculative_config.num_speculative_tokens == 6
    assert config.scheduler_config.scheduler_cls is None
    assert single.speculative_config.num_speculative_tokens_per_batch_size is None
    assert set(draft_lengths(single)) == {frozenset([3])}


@needs_drafting
def test_an_engine_that_chooses_its_drafts_prepares_for_all(checkpoints: dict[str, Path]) -> None:
    from tandem_plugin.engine.speculative.draft_choice import CANDIDATES
    from tandem_plugin.engine.speculative.speculator import draft_lengths

    settings = {"mode": "speculative", "drafts": "auto"}
    with on_runner("v2"):
        config = configure(checkpoints["senior"], settings, max_num_seqs=50)
        with refused("drafts-auto-too-few-requests", max_num_seqs=3, least=4):
            configure(checkpoints["senior"], settings, max_num_seqs=3)
    assert draft_lengths(config) == [frozenset(CANDIDATES)] * 51
    table = config.speculative_config.num_speculative_tokens_per_batch_size
    assert table == [(1, 47, 8), (48, 48, 4), (49, 49, 2), (50, 50, 0)]
    assert config.speculative_config.num_speculative_tokens == 8


@needs_drafting
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (
            {"logits_processors": ["vllm.v1.sample.logits_processor.builtin:MinPLogitsProcessor"]},
            "speculative-logits-processors",
        ),
        pytest.param(
            {"return_sampling_mask": True, "logprobs_mode": "processed_logprobs"},
            "speculative-setting-unsupported",
            marks=pytest.mark.skipif(
                Version(vllm.__version__) < Version("0.32"), reason="this vLLM refuses it itself"
            ),
        ),
        ({"data_parallel_size": 2}, "drafts-data-parallel"),
        (
            {"max_num_batched_tokens": 300, "max_num_seqs": 160},
            "speculative-batched-tokens-too-few",
        ),
    ],
)
def test_serving_options_that_do_not_go_with_speculative_mode_are_refused(
    checkpoints: dict[str, Path], arguments: dict[str, Any], code: str
) -> None:
    tandem = {"mode": "speculative", "drafts": {1: 7, 80: 0}}
    with on_runner("v2"), refused(code):
        configure(checkpoints["senior"], tandem, **arguments)


def test_batch_sharded_sampling_is_refused(checkpoints: dict[str, Path]) -> None:
    from tandem_plugin.engine.unsupported import check_config

    config = configure(checkpoints["senior"], {"schedule": "word"})
    config.parallel_config.enable_batch_sharded_sampling = True
    with refused("batch-sharded-sampling-unsupported"):
        check_config(config)


@pytest.mark.parametrize("size", [700, 1024])
def test_a_junior_with_another_vocabulary_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, size: int
) -> None:
    """Of another size, and of the same."""
    corpus = [f"{n} apples and {n * 7} pears cost {n * 13} coins\n" * 3 for n in range(2_000)]
    tokenizer = make_tokenizer(size, corpus)
    if missing := size - len(tokenizer):
        tokenizer.add_tokens([f"<extra_{i}>" for i in range(missing)])
    stranger = make_model(tmp_path / "stranger", seed=3, tokenizer=tokenizer)
    with refused("junior-tokenizer-differs"):
        configure(checkpoints["senior"], {"junior": str(stranger)})


def without_tokenizer(checkpoint: Path, folder: Path) -> Path:
    """A copy of a checkpoint whose tokenizer was not saved."""
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("tokenizer*", "*.jinja"))
    return folder


def test_model_without_tokenizer_files_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """The senior's are missing from a folder; the junior's would have to be assumed."""
    bare = without_tokenizer(checkpoints["senior"], tmp_path / "bare")
    with refused("tokenizer-files-missing", folder=str(bare)):
        configure(bare, {"schedule": "word"})
    with refused("junior-tokenizer-missing", junior=str(bare)):
        configure(checkpoints["senior"], {"junior": str(bare)})


def test_tokenizers_that_encode_differently_are_reported(
    checkpoints: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Token ids mean the same to both, so the pair works."""
    shutil.copytree(checkpoints["junior"], tmp_path / "junior")
    file = tmp_path / "junior" / "tokenizer.json"
    lower = json.loads(file.read_text()) | {"normalizer": {"type": "Lowercase"}}
    file.write_text(json.dumps(lower))
    with caplog.at_level(logging.WARNING):
        configure(checkpoints["senior"], {"junior": str(tmp_path / "junior")})
    messages = (record.getMessage() for record in caplog.records)
    (said,) = (message for message in messages if message.startswith("The tokenizers of"))
    assert "The senior's encodes all prompts" in said


def test_tokenizers_that_begin_texts_differently_are_reported(
    checkpoints: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a Llama beside a model without a token for the beginning of a text."""
    shutil.copytree(checkpoints["junior"], tmp_path / "junior")
    core = Tokenizer.from_file(str(tmp_path / "junior" / "tokenizer.json"))
    core.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    core.save(str(tmp_path / "junior" / "tokenizer.json"))
    with caplog.at_level(logging.WARNING):
        configure(checkpoints["senior"], {"junior": str(tmp_path / "junior")})
    assert any("add other special tokens" in r.getMessage() for r in caplog.records)


def test_an_engine_that_does_not_ask_for_tandem_is_left_alone(
    checkpoints: dict[str, Path],
) -> None:
    from tandem_plugin.engine.runners import check_engine

    config = configure(checkpoints["senior"], None)
    assert config.model_config.architectures == ["Qwen3ForCausalLM"]
    assert not config.model_config.logits_processors
    with refused("engine-not-in-tandem"):
        check_engine(config)


def test_the_users_own_overrides_and_processors_are_kept(checkpoints: dict[str, Path]) -> None:
    config = configure(
        checkpoints["senior"],
        {"schedule": "word"},
        hf_overrides={"rope_theta": 12345.0},
        logits_processors=["vllm.v1.sample.logits_processor.builtin:MinPLogitsProcessor"],
    )
    assert config.model_config.architectures == ["TandemQwen3ForCausalLM"]
    assert len(config.model_config.logits_processors) == 2
    assert config.additional_config["tandem"]["junior"] == str(checkpoints["senior"])


def test_a_trainers_engine_without_its_adapter_is_refused(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "verl.workers.rollout.vllm_rollout", ModuleType("verl"))
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {"OpenRLHF": ()})
    # Imported, as by whatever refers to it, is not yet in place.
    monkeypatch.setitem(sys.modules, "tandem_verl.engine", ModuleType("server"))
    with refused("trainer-adapter-inactive"):
        configure(checkpoints["senior"], {"schedule": "word"})
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {"verl": ()})
    config = configure(checkpoints["senior"], {"schedule": "word"})
    assert config.additional_config["tandem"]["require"] is True


def with_experts(folder: Path, checkpoint: Path) -> Path:
    """The configuration of a mixture of experts with a checkpoint's tokenizer."""
    from transformers import Qwen3MoeConfig

    shutil.copytree(checkpoint, folder)
    settings = Qwen3MoeConfig(
        num_experts=4, num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, vocab_size=len(make_tokenizer()),
        max_position_embeddings=1024, architectures=["Qwen3MoeForCausalLM"],
    )  # fmt: skip
    settings.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("experts", [0, 4])
def test_balancing_experts_does_not_go_with_a_junior_that_has_some(
    checkpoints: dict[str, Path], tmp_path: Path, experts: int
) -> None:
    """vLLM takes ``enable_eplb`` on GPUs alone, so that it is put into the configuration here."""
    from vllm.engine.arg_utils import EngineArgs

    from tandem_plugin.engine.configure import create_tandem_config

    junior = checkpoints["junior"]
    if experts:
        junior = with_experts(tmp_path / "junior", junior)

    def create(args: Any) -> Any:
        config = EngineArgs.create_engine_config.__wrapped__(args)  # type: ignore[attr-defined]
        config.parallel_config.enable_eplb = True
        return config

    args = EngineArgs(
        model=str(checkpoints["senior"]), max_model_len=256, enforce_eager=True, dtype="float32",
        additional_config={"tandem": {"junior": str(junior)}},
    )  # fmt: skip
    if not experts:
        create_tandem_config(create, args)
        return
    with refused("eplb-junior-experts"):
        create_tandem_config(create, args)


def test_experts_beside_a_dense_senior_are_refused_at_start(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """vLLM makes no process group for them: the engine's process would end by an assertion."""
    experts = with_experts(tmp_path / "experts", checkpoints["junior"])
    with refused("junior-experts-senior-dense"):
        configure(checkpoints["senior"], {"junior": str(experts)})
    assert configure(experts, {"junior": str(checkpoints["junior"])}).model_config.is_moe


def test_engine_says_once_which_two_models_it_runs(
    checkpoints: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the level of vLLM's log, in one of the processes that make its configuration."""
    from vllm.engine.arg_utils import EngineArgs

    junior = str(checkpoints["junior"])
    tandem = {"schedule": "word", "cap": 5, "junior": junior, "junior_name": "a name"}
    args = EngineArgs(str(checkpoints["senior"]), max_model_len=256, enforce_eager=True)
    for count, rank in ((1, 0), (2, -1), (2, 0), (2, 1)):
        args.additional_config, args.hf_overrides = {"tandem": tandem}, {}
        args._api_process_count, args._api_process_rank = count, rank
        args.create_engine_config()
        lines = [line for line in capfd.readouterr().err.splitlines() if "tandem engine:" in line]
        assert len(lines) == (rank == -1 or count == 1)
        for line in lines:
            assert f"senior={checkpoints['senior']} junior={junior} " in line
            assert "mode=lockstep schedule=word p=0.5 cap=5 " in line
            assert "junior_name=a name " in line


def test_architecture_that_vllm_does_not_know_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    config = json.loads((checkpoints["senior"] / "config.json").read_text())
    shutil.copytree(checkpoints["senior"], tmp_path / "senior")
    config["architectures"] = ["MyOwnForCausalLM"]
    (tmp_path / "senior" / "config.json").write_text(json.dumps(config))
    with refused("senior-architecture-unknown", architecture="MyOwnForCausalLM"):
        configure(tmp_path / "senior", {"schedule": "word"})
