"""The places of vLLM that tandem touches are where it expects them."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import vllm.plugins
from support.drafting import has_drafting
from support.lora import has_lora
from support.speculation import needs_drafting

pytestmark = [pytest.mark.hooks, pytest.mark.lane]

RUNNER = "vllm.v1.worker.gpu.model_runner"
needs_states = pytest.mark.skipif(
    not has_drafting(), reason="recurrent states need vLLM 0.29, as drafting does"
)
needs_lora = pytest.mark.skipif(not has_lora(), reason="adapters need vLLM 0.29")


@pytest.fixture(autouse=True, scope="module")
def _plugins() -> None:
    vllm.plugins.load_general_plugins()


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(inspect.unwrap(function)).parameters)


def source_of(module: str) -> str:
    """A module's source, read without importing it: Model Runner V2 needs Triton."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def parameters_in(module: str, name: str) -> list[str]:
    """The parameters of ``function`` or ``Class.method``, read without importing the module."""
    body: Any = ast.parse(source_of(module)).body
    for part in name.split("."):
        (found,) = [node for node in body if getattr(node, "name", None) == part]
        body = found.body
    return [argument.arg for argument in found.args.args]


def test_engine_config_is_made_in_one_place_and_wrapped_once() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

    from tandem_plugin.engine.plugin import register

    wrapped = EngineArgs.create_engine_config
    assert wrapped.__wrapped__.__module__ == "vllm.engine.arg_utils"
    assert parameters(wrapped)[0] == "self"
    assert "create_engine_config" not in vars(AsyncEngineArgs)
    register()
    assert EngineArgs.create_engine_config is wrapped


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (
            "vllm.v1.engine.input_processor:InputProcessor.process_inputs",
            ["self", "request_id", "prompt", "params"],
        ),
        (
            "vllm.v1.engine.parallel_sampling:ParentRequest.get_child_info",
            ["self", "index"],
        ),
    ],
)
def test_requests_and_their_samples_pass_one_method_that_is_wrapped(
    place: str, first: list[str]
) -> None:
    module, _, path = place.partition(":")
    method = operator.attrgetter(path)(importlib.import_module(module))
    assert method.__wrapped__.__module__ == module
    assert parameters(method)[: len(first)] == first


def test_ends_of_generation_are_in_the_parameters_that_admission_changes() -> None:
    """``stop_token_ids`` end a request, and ``all_stop_token_ids`` are those kept away before."""
    from vllm import SamplingParams
    from vllm.config import ModelConfig
    from vllm.v1.core.sched.utils import check_stop

    params = SamplingParams(stop_token_ids=[3])
    params.update_from_generation_config({"eos_token_id": [4, 5]}, 5)
    params.all_stop_token_ids.add(6)
    assert params.all_stop_token_ids == {3, 4, 5, 6}
    assert sorted(params.stop_token_ids) == [3, 4]
    assert "stop_token_ids" in inspect.getsource(check_stop)
    assert callable(ModelConfig.try_get_generation_config)


def test_tokenizers_are_loaded_by_two_functions_as_expected() -> None:
    from vllm import tokenizers

    assert parameters(tokenizers.cached_tokenizer_from_config)[0] == "model_config"
    assert parameters(tokenizers.get_tokenizer)[0] == "tokenizer_name"


def test_beam_searches_are_made_in_two_places() -> None:
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    from tandem_plugin.engine.patches.requests import wrap_offline_beam_search

    wrap_offline_beam_search()
    for mixin in (BeamSearchOnlineMixin, BeamSearchOfflineMixin):
        assert mixin.beam_search.__wrapped__.__module__ == mixin.__module__
        assert parameters(mixin.beam_search)[0] == "self"
    assert "engine_client" in BeamSearchOnlineMixin.__annotations__
    assert "self.llm_engine = " in source_of("vllm.entrypoints.llm")


def test_handlers_of_text_show_the_body_to_one_check() -> None:
    from vllm.entrypoints.serve.engine.serving import BaseServing

    from tandem_plugin.engine.patches.bodies import wrap_bodies

    wrap_bodies()
    assert BaseServing._check_model.__wrapped__.__module__ == BaseServing.__module__
    assert parameters(BaseServing._check_model) == ["self", "request"]
    assert parameters(BaseServing.create_error_response)[0] == "message"
    for handler in ("completion", "chat_completion", "responses"):
        source = source_of(f"vllm.entrypoints.openai.{handler}.serving")
        assert "await self._check_model(request)" in source
        assert "def _check_model" not in source


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tandem": "x"}, "[request-field-misplaced]"),
        ({"extra_body": {"vllm_xargs": {"Tandem": "x"}}}, "[request-field-misplaced]"),
        ({"metadata": {"tandem": "x"}, "vllm_xargs": {"tandem": "x"}}, "served"),
    ],
)
def test_line_of_a_batch_file_is_checked_without_http(fields: dict[str, Any], code: str) -> None:
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.serve.engine.serving import BaseServing

    from tandem_plugin.engine.patches.bodies import wrap_bodies

    wrap_bodies()
    serving: Any = SimpleNamespace(
        model_config=SimpleNamespace(architectures=["TandemQwen3ForCausalLM"]),
        create_error_response=str,
        _is_model_supported=lambda model: True,
    )
    request = CompletionRequest(model="team", prompt="x", **fields)
    answer = asyncio.run(BaseServing._check_model(serving, request))
    assert code in (answer or "served")


def test_servers_build_their_middleware_once_they_have_an_engine() -> None:
    from fastapi import FastAPI

    from tandem_plugin.engine.patches.bodies import wrap_bodies

    wrap_bodies()
    assert FastAPI.build_middleware_stack.__wrapped__.__module__ == "fastapi.applications"
    assert parameters(FastAPI.build_middleware_stack) == ["self"]
    assert "self.user_middleware" in inspect.getsource(FastAPI.build_middleware_stack)
    assert "state.engine_client = engine_client" in source_of(
        "vllm.entrypoints.launchers.api_server.app_state"
    )


def test_every_architecture_has_a_tandem_form_with_the_same_settings() -> None:
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    plain = {name for name in ModelRegistry.models if not name.startswith("Tandem")}
    assert {"Tandem" + name for name in plain} <= set(ModelRegistry.models)
    for name, settings in list(MODELS_CONFIG_MAP.items()):
        if name in plain:
            assert MODELS_CONFIG_MAP["Tandem" + name] is settings


def test_linear_layers_look_the_cpu_dispatch_up_when_they_are_processed() -> None:
    from vllm.model_executor.layers import linear, utils

    assert parameters(utils.dispatch_cpu_unquantized_gemm) == ["layer", "remove_weight"]
    source = inspect.getsource(linear.UnquantizedLinearMethod.process_weights_after_loading)
    assert "import dispatch_cpu_unquantized_gemm" in source


def test_logits_processors_are_told_of_the_batch_as_expected() -> None:
    from vllm.v1.sample.logits_processor.interface import BatchUpdate, LogitsProcessor

    assert {"batch_size", "removed", "added", "moved"} <= set(BatchUpdate.__dataclass_fields__)
    assert parameters(LogitsProcessor.update_state) == ["self", "batch_update"]


def test_runner_v2_asks_the_model_for_its_state() -> None:
    source = source_of("vllm.v1.worker.gpu.model_states")
    assert "model.get_model_state_cls()" in source
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState
    from vllm.v1.worker.gpu.model_states.interface import ModelState

    assert issubclass(DefaultModelState, ModelState)
    assert parameters(ModelState.__init__)[1:3] == ["vllm_config", "model"]
    assert parameters(ModelState.add_request) == ["self", "req_index", "new_req_data"]
    assert parameters(ModelState.remove_request) == ["self", "req_id"]
    assert parameters(ModelState.apply_staged_writes) == ["self"]
    assert parameters(ModelState.prepare_inputs) == ["self", "input_batch", "req_states"]
    assert parameters(ModelState.postprocess_state)[:3] == ["self", "idx_mapping", "num_sampled"]


@needs_drafting
def test_runner_v2_asks_one_function_for_its_speculator_and_follows_its_class() -> None:
    """Why ``init_speculator`` is wrapped, and what tandem's speculator must be."""
    runner = source_of(RUNNER)
    assert "from vllm.v1.worker.gpu.spec_decode import init_speculator\n" in runner
    assert runner.count("self.speculator = init_speculator(") == 1
    assert "isinstance(self.speculator, DraftModelSpeculator)" in runner
    assert parameters_in("vllm.v1.worker.gpu.spec_decode", "init_speculator")[:2] == [
        "vllm_config", "device",
    ]  # fmt: skip
    base = "vllm.v1.worker.gpu.spec_decode.speculator"
    assert parameters_in(base, "DraftModelSpeculator.load_draft_model")[1:] == [
        "target_model", "target_attn_layer_names",
    ]  # fmt: skip
    assert parameters_in(base, "DraftModelSpeculator.set_attn")[1:] == [
        "model_state", "kv_cache_config", "block_tables", "target_input_buffers",
        "target_attn_groups",
    ]  # fmt: skip
    assert parameters_in(base, "BaseSpeculator.propose")[1:12] == [
        "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states",
        "aux_hidden_states", "num_sampled", "num_rejected", "last_sampled", "next_prefill_tokens",
        "temperature", "seeds",
    ]  # fmt: skip
    for name in ("draft_tokens", "draft_logits", "temperature", "seeds", "idx_mapping"):
        assert f"self.{name}" in source_of(base), name


@needs_drafting
def test_runner_v2_drafts_after_the_state_was_told_of_the_round() -> None:
    source = source_of(RUNNER)
    sampling = source[source.index("def sample_tokens(") :]
    assert sampling.index("self.postprocess_sampled(") < sampling.index(".propose(")
    assert "self.req_states.draft_tokens[input_batch.idx_mapping] = draft_tokens" in sampling
    assert "self.sampler, self.rejection_sampler = custom" in source
    update = source_of("vllm.v1.worker.gpu.input_batch").split("def _post_update_kernel(")[1]
    for written in ("all_token_ids_ptr + req_state_idx", "num_computed_tokens_ptr + req_state_idx"):
        assert f"tl.store({written}" in " ".join(update.split()).replace("( ", "("), written


@needs_drafting
def test_rounds_are_captured_by_vllms_own_manager_of_graphs() -> None:
    graphs = "vllm.v1.worker.gpu.cudagraph_utils"
    assert parameters_in(graphs, "CudaGraphManager.__init__")[1:5] == [
        "vllm_config", "device", "cudagraph_mode", "decode_query_len",
    ]  # fmt: skip
    assert parameters_in(graphs, "CudaGraphManager.capture")[1:] == [
        "create_forward_fn", "progress_bar_desc",
    ]  # fmt: skip
    assert parameters_in(graphs, "CudaGraphManager.dispatch")[1:5] == [
        "num_reqs", "num_tokens", "uniform_token_count", "num_active_loras",
    ]  # fmt: skip
    assert parameters_in(graphs, "CudaGraphManager.run_fullgraph") == ["self", "desc"]
    tables = "vllm.v1.worker.gpu.block_table"
    assert parameters_in(tables, "BlockTables.compute_slot_mappings")[1:] == [
        "idx_mapping", "query_start_loc", "positions", "num_tokens_padded", "out",
    ]  # fmt: skip
    attention = "vllm.v1.worker.gpu.attn_utils"
    assert {
        "attn_groups", "num_reqs", "num_tokens", "query_start_loc_gpu", "query_start_loc_cpu",
        "max_query_len", "seq_lens", "max_seq_len", "block_tables", "slot_mappings",
        "kv_cache_config", "seq_lens_cpu_upper_bound", "positions", "is_prefilling",
        "for_cudagraph_capture",
    } <= set(parameters_in(attention, "build_attn_metadata"))  # fmt: skip
    sampling = "vllm.v1.worker.gpu.sample.gumbel"
    assert parameters_in(sampling, "gumbel_sample")[:10] == [
        "logits", "expanded_idx_mapping", "temperature", "seed", "pos", "apply_temperature",
        "is_drafting", "logits_cache", "logits_cache_col", "use_fp64",
    ]  # fmt: skip
    assert "mask=mask & is_valid_req" in source_of(sampling), "padding must keep no logits"


@needs_drafting
def test_the_scheduler_may_ask_for_fewer_drafts() -> None:
    """What a table of drafts rests on, and where the runner is wrapped for it."""
    runner = source_of(RUNNER)
    tells = "num_speculative_tokens=num_spec_tokens," in runner
    state = runner.split("class ExecuteModelState(NamedTuple)")[1].split("\nclass ")[0]
    assert ("num_spec_tokens_to_schedule" in state) is tells
    assert parameters_in(RUNNER, "GPUModelRunner.execute_model")[1] == "scheduler_output"
    scheduler = source_of("vllm.v1.core.sched.scheduler")
    assert scheduler.count("self.dynamic_sd_lookup[") == 1, "each step's length is chosen once"
    looked_up = scheduler.partition("num_spec_tokens_to_schedule = self.dynamic_sd_lookup[")[2]
    assert looked_up.split()[0] == "len(num_scheduled_tokens)"
    assert "draft_slots = spec.max_num_new_slots_for_drafting if" in scheduler
    assert "input_budget -= num_new_tokens + draft_slots" in scheduler, "a step's room"
    assert "token_budget = self.max_num_scheduled_tokens" in scheduler
    assert parameters_in(RUNNER, "GPUModelRunner.take_draft_token_ids") == ["self"]


@needs_drafting
def test_an_engine_can_time_its_steps_before_it_answers() -> None:
    """What ``drafts: auto`` is wrapped around, and what it calls."""
    from vllm.v1.engine.core import EngineCore, EngineCoreProc

    for wrapped in (EngineCore.__init__, EngineCoreProc.run_busy_loop):
        assert wrapped._tandem_wrapped  # type: ignore[attr-defined]
    core = source_of("vllm.v1.engine.core")
    start = core.partition("    def __init__(")[2].partition("    def ")[0]
    assert "load_general_plugins()" in start, "too late to wrap it in a process of its own"
    assert "self.step_fn = (" in start
    assert "self.request_block_hasher" in start
    assert core.count("self.step_fn()") == 1
    assert "self.post_step(model_executed)" in core.partition("self.step_fn()")[2][:600]
    assert "engine_core.run_busy_loop()" in core
    assert parameters(EngineCore.abort_requests)[1:] == ["request_ids"]
    assert parameters(EngineCore.add_request)[1] == "request"
    request = parameters_in("vllm.v1.request", "Request.__init__")
    assert request[1:5] == ["request_id", "prompt_token_ids", "sampling_params", "pooling_params"]
    assert "block_hasher" in request


@needs_drafting
def test_graphs_are_captured_for_every_length_of_the_table_of_lengths() -> None:
    """The senior's by vLLM, from the configuration; the junior's rounds by tandem's manager."""
    graphs = source_of("vllm.v1.worker.gpu.cudagraph_utils")
    assert "speculative_config.num_speculative_tokens_per_batch_size," in graphs
    assert "for decode_query_len in decode_query_lens:" in graphs
    assert "self._init_candidates()" in graphs
    assert "for desc in self._candidates[key]:" in graphs, "the first that fits is taken"
    assert "descs = self._capture_descs[mode]" in graphs
    assert "self.graphs[desc] = graph" in graphs
    assert "self.graphs[desc].replay()" in graphs


@needs_drafting
def test_draft_models_have_their_targets_number_of_token_ids() -> None:
    """What padded juniors rest on, and why the check is wrapped."""
    config = source_of("vllm.config.speculative")
    assert "self.verify_equal_vocab_size_if_draft_model()" in config
    assert "return self.model_arch_config.vocab_size" in source_of("vllm.config.model")
    speculator = source_of("vllm.v1.worker.gpu.spec_decode.speculator")
    assert "self.vocab_size = self.draft_model_config.get_vocab_size()" in speculator


@needs_drafting
def test_samplers_of_runner_v2_take_what_tandem_gives_them() -> None:
    rejection = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
    call = parameters_in(rejection, "RejectionSampler.__call__")
    assert call[:4] == ["self", "logits", "input_batch", "draft_logits"]
    assert call[4:] in ([], ["invalid_drafts"])
    verify = parameters_in(rejection, "RejectionSampler._verify")
    assert verify[:10] == [
        "self", "logits", "draft_logits", "draft_sampled", "pos", "cu_num_logits", "idx_mapping",
        "idx_mapping_np", "expanded_idx_mapping", "expanded_local_pos",
    ]  # fmt: skip
    newer = ["seq_lens_upper_bound_np", "verify_draft_sampled"]  # from 0.31, from 0.32
    assert verify[10:] == newer[: len(verify) - 10]
    kernels = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"
    assert parameters_in(kernels, "rejection_sample")[:13] == [
        "target_logits", "draft_logits", "draft_sampled", "cu_num_logits", "pos", "idx_mapping",
        "expanded_idx_mapping", "expanded_local_pos", "temperature", "seed",
        "num_speculative_steps", "synthetic_conditional_rates", "use_fp64",
    ]  # fmt: skip
    sampler = "vllm.v1.worker.gpu.sample.sampler"
    assert parameters_in(sampler, "Sampler.apply_sampling_params") == [
        "self", "logits", "expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "pos",
        "input_ids", "expanded_local_pos", *verify[10:11], "skip_top_k_top_p",
    ]  # fmt: skip
    state = "vllm.v1.worker.gpu.model_states.interface"
    assert parameters_in(state, "ModelState.custom_sampler") == ["self", "sampler"]
    assert parameters_in(state, "ModelState.prepare_attn")[1:7] == [
        "input_batch", "cudagraph_mode", "block_tables", "slot_mappings", "attn_groups",
        "kv_cache_config",
    ]  # fmt: skip


@needs_drafting
def test_sampling_parameters_that_drafting_leaves_out_are_known() -> None:
    """A new parameter must be looked at before an engine that drafts lets it in."""
    from vllm import SamplingParams

    looked_at = {
        # What is asked for, how it is told, and when it ends.
        "n", "seed", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "detokenize",
        "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
        "output_kind", "stream_interval", "skip_clone", "output_text_buffer_length",
        "flat_logprobs", "logprobs", "prompt_logprobs", "prompt_logprob_token_ids",
        "prompt_logprob_start", "skip_reading_prefix_cache", "extra_args",
        "repetition_detection", "routed_experts_prompt_start",
        # Temperature and masks.
        "temperature", "top_p", "top_k", "allowed_token_ids", "min_tokens",
        # Refused: by vLLM, by the engine's configuration, at the door.
        "min_p", "logit_bias", "trace_decode_token_ids", "watermarking",
        "presence_penalty", "frequency_penalty", "repetition_penalty",
        "bad_words", "structured_outputs", "thinking_token_budget", "logprob_token_ids",
    }  # fmt: skip
    fields = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")}
    assert fields <= looked_at, fields - looked_at


def test_all_reduces_are_fused_in_one_workspace_of_the_first_models_width() -> None:
    """Why the fusion is off where two models differ in width."""
    defaults = source_of("vllm.config.vllm")
    fusing = defaults.split("def enable_allreduce_rms_fusion(")[1].split("\ndef ")[0]
    assert "tensor_parallel_size > 1" in fusing
    workspace = source_of("vllm.distributed.device_communicators.flashinfer_all_reduce")
    asked = workspace.split("def get_fi_ar_workspace(")[1].split("\ndef ")[0]
    assert "if _fi_ar_workspace is not None" in asked
    assert "return _fi_ar_workspace" in asked
    fusion = source_of("vllm.compilation.passes.fusion.allreduce_rms_fusion")
    assert "hidden_dim = config.model_config.get_hidden_size()" in fusion
    assert "if self.pass_config.fuse_allreduce_rms:" in source_of(
        "vllm.compilation.passes.pass_manager"
    )


def test_compile_ranges_are_written_into_the_compilation_config_at_every_start() -> None:
    """Why the junior's configuration must leave them: it shares the senior's."""
    config = source_of("vllm.config.vllm")
    assert "self._set_compile_ranges()" in config.split("def __post_init__(")[1]
    ranges = config.split("def _set_compile_ranges(")[1].split("\n    def ")[0]
    assert "compilation_config.compile_ranges_endpoints = sorted(" in ranges
    assert "self.model_config.get_hidden_size()" in ranges


def test_breakable_graphs_are_chosen_by_the_names_of_architectures() -> None:
    """Of which a tandem engine's are its own: why models of these are rejected."""
    from tandem_plugin.engine.unsupported import _BREAKABLE

    config = source_of("vllm.config.vllm")
    chosen = config.split('"VLLM_USE_BREAKABLE_CUDAGRAPH" not in os.environ')
    assert len(chosen) >= 2
    named = "DEFAULT_BREAKABLE_CUDAGRAPH_ARCHITECTURES = frozenset(" in config
    assert named or all(f'"{name}"' in chosen[1] for name in _BREAKABLE)


def test_additional_config_that_is_no_dict_says_its_own_hash() -> None:
    """What the compilation cache goes by: see :class:`AdditionalConfig`."""
    from vllm.config import VllmConfig

    hashing = inspect.getsource(VllmConfig.compute_hash)
    assert "isinstance(additional_config := self.additional_config, dict)" in hashing
    assert "additional_config.compute_hash()" in hashing


@needs_lora
def test_torch_kernels_take_no_adapter_for_the_last_one_still() -> None:
    """If vLLM has fixed it, ``keep_adapters_to_their_requests`` can go."""
    import torch
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    from tandem_plugin.engine.patches.lora import keep_adapters_to_their_requests

    keep_adapters_to_their_requests()
    inputs, weights = torch.ones(3, 4), torch.stack([torch.ones(1, 2, 4), torch.full((1, 2, 4), 7)])
    indices, expected = torch.tensor([0, -1, 1]), torch.tensor([4.0, 0.0, 28.0])
    for shrink in (lora_ops.bgmv_shrink, punica_cpu.bgmv_shrink):
        output = torch.full((3, 2), 9.0)
        shrink(inputs, weights, output, indices, 1.0)
        assert output.tolist() == expected[:, None].expand(3, 2).tolist()
        shrink.__wrapped__(inputs, weights, output, indices, 1.0)
        assert output[1].tolist() == [28.0, 28.0]
    output = torch.full((3, 2), 9.0)
    lengths = torch.ones(3, dtype=torch.int64)
    punica_cpu.sgmv_shrink(inputs, weights, output, lengths, lengths, indices, 3, 1, 3, 1.0)
    assert output.tolist() == expected[:, None].expand(3, 2).tolist()


@needs_lora
def test_adapters_are_kept_by_one_method_and_reloads_pass_the_worker() -> None:
    from vllm.lora.model_manager import LoRAModelManager, LRUCacheLoRAModelManager
    from vllm.v1.worker.gpu_worker import Worker

    assert parameters(LoRAModelManager._add_adapter) == ["self", "lora"]
    assert "_add_adapter" not in vars(LRUCacheLoRAModelManager)
    for manager in (LoRAModelManager, LRUCacheLoRAModelManager):
        assert "self._add_adapter(" in inspect.getsource(inspect.unwrap(manager.add_adapter))
    made = inspect.getsource(LoRAModelManager.__init__)
    for name in ("packed_modules", "modules"):
        assert f"self.{name}: dict[str, " in made
    assert "reload_weights" in vars(Worker)
    # Why heads and embeddings are not adapted: what a model says of itself.
    supported = source_of("vllm.lora.utils").split("def get_supported_lora_modules")[1]
    assert 'getattr(module, "embedding_modules", None)' in supported.split("\ndef ")[0]


@needs_lora
def test_adapters_are_put_around_the_language_model_alone_of_what_sees_images() -> None:
    """Others would find the tokens' mapping in a tower: vLLM has one for each prefix it is told."""
    from vllm import ModelRegistry

    from tandem_plugin.engine.unsupported import IMAGE_FAMILIES

    for family in IMAGE_FAMILIES:
        parts = ModelRegistry.models[family].load_model_cls().get_mm_mapping(None)
        (language,) = parts.language_model
        towers = (*parts.tower_model, *parts.connector)
        assert towers
        assert not any(name.startswith((language, "language")) for name in towers)


@needs_lora
def test_verl_asks_vllms_mapper_for_a_former_name() -> None:
    """When this fails for verl, :func:`keep_the_mappers_former_name` can go."""
    verl = importlib.util.find_spec("verl")
    if verl is None or verl.origin is None:
        pytest.skip("verl is not installed")
    from vllm.model_executor.models.utils import WeightsMapper

    from tandem_plugin.engine.patches.lora import keep_the_mappers_former_name

    asking = (Path(verl.origin).parent / "utils/vllm/utils.py").read_text(encoding="utf-8")
    assert "hf_to_vllm_mapper.get_unstacked_mapper()" in asking
    keep_the_mappers_former_name()
    mapper = WeightsMapper(
        orig_to_new_prefix={"a.": "b."}, orig_to_new_stacked={".q": (".qkv", "q")}
    )
    assert mapper.get_unstacked_mapper().apply_list(["a.q"]) == ["b.q"]


def test_a_hook_that_moved_stops_engines_that_ask_for_tandem_and_no_others(
    checkpoints: dict[str, Path],
) -> None:
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        pytest.skip("vLLM's sources alone, of a wheel for other machines: no engine is configured")
    script = f"""
from tandem_plugin.engine import plugin

def moved():
    raise ImportError("the registry moved")

plugin.register_architectures = moved

from vllm.engine.arg_utils import EngineArgs

def configure(**extra):
    args = EngineArgs(model={str(checkpoints["senior"])!r}, max_model_len=256, **extra)
    return args.create_engine_config()

assert configure().model_config.max_model_len == 256
try:
    configure(additional_config={{"tandem": {{"schedule": "word"}}}})
except RuntimeError as error:
    print("refused:", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert "refused: The engine enables tandem" in done.stdout, done.stderr[-2000:]
    assert "ImportError: the registry moved" in done.stdout


def test_sleep_of_level_2_keeps_buffers_and_asks_the_workers_models() -> None:
    """Why the junior's tensors are among the buffers, and where a sleep is prepared."""
    from vllm.v1.worker.gpu_worker import Worker

    from tandem_plugin.engine.patches.worker import prepare_sleep

    prepare_sleep()
    assert parameters(Worker.sleep) == ["self", "level"]
    assert Worker.sleep.__wrapped__.__module__ == "vllm.v1.worker.gpu_worker"
    source = source_of("vllm.v1.worker.gpu_worker")
    saving = source[source.index("def sleep(") : source.index("def wake_up(")]
    assert "model = self.model_runner.model" in saving
    assert "for name, buffer in model.named_buffers()" in saving
    discarding = max(saving.rfind(".suspend("), saving.rfind("allocator.sleep("))
    assert saving.index("named_buffers()") < discarding, "it saves what is gone"
    assert "draft.named_buffers()" in saving or not has_drafting()
    waking = source[source.index("def wake_up(") :].split("\n    def ")[0]
    assert '"weights" in tags' in waking or "tags is None" in waking
    assert waking.index("(tags)") < waking.index("named_buffers()")


@needs_drafting
def test_vllm_keeps_and_chunks_logits_as_drafting_is_computed_to_need() -> None:
    from tandem_plugin.engine.speculative.memory import CHUNK_BYTES

    sampler = source_of("vllm.v1.worker.gpu.spec_decode.rejection_sampler")
    assert "MAX_CHUNK_BYTES = 2**30" in sampler
    assert CHUNK_BYTES == 2**30
    assert "MAX_CHUNK_BYTES // (vocab_size * _FP32_BYTES)" in sampler
    speculator = source_of("vllm.v1.worker.gpu.spec_decode.speculator")
    assert "vllm_config.model_config.head_dtype" in speculator
    kept = speculator.split("self.draft_logits = torch.full(")[1].split("device=device")[0]
    for size in ("self.max_num_reqs,", "self.num_speculative_steps,", "self.vocab_size,"):
        assert size in kept, size


@needs_drafting
def test_vllms_profiling_calls_the_sampler_before_any_request() -> None:
    """What a round needs is set aside there, so that the KV cache leaves it free."""
    source = source_of("vllm.v1.worker.gpu.model_runner")
    profiling = source[source.index("def profile_run(") :].split("\n    def ")[0]
    assert "self._dummy_sampler_run(" in profiling
    dummy = source[source.index("def _dummy_sampler_run(") :].split("\n    @")[0]
    assert "self.sampler(logits, dummy_input_batch)" in dummy
    worker = source_of("vllm.v1.worker.gpu_worker")
    measuring = worker[worker.index("def determine_available_memory(") :]
    assert measuring.index("memory_profiling(") < measuring.rindex("profile_run(")


@needs_drafting
def test_both_runners_tell_attention_groups_apart_by_their_backends_name() -> None:
    """So the junior's layers have buffers of their own, where its pass runs beside the senior's."""
    for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.attn_utils"):
        assert "attn_backend.full_cls_name()" in source_of(module)
    attention = source_of("vllm.model_executor.layers.attention.attention")
    assert "return self.attn_backend" in attention


@needs_states
def test_pages_are_sized_by_the_states_that_a_model_class_lists() -> None:
    platform = source_of("vllm.platforms.interface")
    aligning = platform.split("def _align_hybrid_block_size(")[1].split("\n    @classmethod")[0]
    assert 'hasattr(model_cls, "get_mamba_specs_from_config")' in aligning
    assert "in model_cls.get_mamba_specs_from_config(vllm_config)" in aligning
    for name in ("shape", "dtype"):
        assert f"model_cls.get_mamba_state_{name}_from_config(vllm_config)" in aligning
    assert "block_size=-1," in aligning
    uniproc = source_of("vllm.v1.executor.uniproc_executor")
    loading, planning = "load_model", "update_block_size_for_backend(self.vllm_config)"
    assert uniproc.index(loading) < uniproc.index(planning), "the junior must be built by then"
    layer = source_of("vllm.model_executor.layers.mamba.abstract")
    assert "block_size=mamba_block_size," in layer
    assert "vllm_config.cache_config.mamba_block_size" in layer, "the engine's, not the junior's"


@needs_states
def test_both_runners_ask_the_model_how_to_copy_states_of_each_kind() -> None:
    asking = "self.model.get_mamba_state_copy_funcs(mamba_types)"
    for runner in ("gpu_model_runner", "gpu.model_states.mamba_hybrid"):
        source = source_of(f"vllm.v1.worker.{runner}")
        assert source.count(asking) == 1
        assert "get_mamba_state_copy_func()" not in source
    interface = source_of("vllm.model_executor.models.interfaces")
    assert "cls.get_mamba_state_copy_func()" in interface
    assert "def mamba_type(self)" in source_of("vllm.model_executor.layers.mamba.abstract")


@needs_states
def test_runner_v2_has_one_state_for_models_with_recurrent_states() -> None:
    chosen = source_of("vllm.v1.worker.gpu.model_states").split("def resolve_model_state_cls(")[1]
    condition = "vllm_config.model_config.is_hybrid or vllm_config.model_config.is_attention_free"
    assert condition in chosen
    assert chosen.index(condition) < chosen.index("return MambaHybridModelState")
    module = "vllm.v1.worker.gpu.model_states.mamba_hybrid"
    assert "class MambaHybridModelState(DefaultModelState)" in source_of(module)
    name = "MambaHybridModelState.postprocess_state"
    assert parameters_in(module, name)[:3] == ["self", "idx_mapping", "num_sampled"]


@needs_states
def test_convolutions_are_packed_as_plain_convolutions_expects() -> None:
    dispatch = source_of("vllm.model_executor.layers.utils")
    packing = dispatch.split("def dispatch_cpu_unquantized_gemm(")[1].split("\ndef ")[0]
    assert packing.index("if layer.weight.ndim != 2:") < packing.index("causal_conv1d_weight_pack")
    assert "layer._cpu_unpacked_conv_weight = unpacked" in packing
    assert "layer.weight.data = ops.causal_conv1d_weight_pack(unpacked)" in packing
    mixer = source_of("vllm.model_executor.layers.mamba.mamba_mixer2")
    assert 'self.register_buffer("conv_weights", conv_weights, persistent=False)' in mixer


def test_text_classes_of_unified_checkpoints_are_built_of_their_config_and_read_by_one_method() -> (
    None
):
    from tandem_plugin.files.unified import TEXT_CLASSES

    registry = source_of("vllm.model_executor.models.registry")
    for unified, text in TEXT_CLASSES.items():
        if text.startswith("Qwen3_5") and not has_drafting():
            continue
        assert f'"{unified}": (' in registry
        (module,) = set(re.findall(rf'"{text}": \("(\w+)", "{text}"\)', registry))
        source = source_of(f"vllm.model_executor.models.{module}")
        # That of Qwen3.5's text classes has another name.
        kind = source.split(
            "class Qwen3_5ForCausalLMBase(" if "Qwen3_5" in text else f"class {text}("
        )
        body = kind[1].split("\nclass ")[0]
        assert "vllm_config.model_config.hf_" in body
        assert "def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]])" in body
    model = source_of("vllm.config.model")
    assert "self.hf_text_config = get_hf_text_config(self.hf_config)" in model
    assert "return uses_mrope(self.hf_config)" in model


@needs_drafting
def test_vllms_classes_that_the_speculative_mode_names_to_type_checkers_exist() -> None:
    """What no import proves, because it is for type checkers only."""
    from tandem_plugin.engine import speculative

    (folder,) = speculative.__path__
    named = set()
    for file in Path(folder).glob("*.py"):
        for block in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(block, ast.If) or ast.unparse(block.test) != "TYPE_CHECKING":
                continue
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vllm"):
                    named.update((str(node.module), alias.name) for alias in node.names)
    assert len(named) > 15
    missing = {
        (module, name) for module, name in named if not re.search(rf"\b{name}\b", source_of(module))
    }
    assert not missing
