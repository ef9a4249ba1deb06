"""The hooks in verl that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re

import pytest
from foreign_source import function_of, source_of

from tandem_plugin.patching import mixins
from tandem_plugin.patching.after_import import missing_modules
from tandem_plugin.patching.versions import check_version
from tandem_verl import configuration, plugin
from tandem_verl.switch import MODES

SPEC = importlib.util.find_spec("verl")
pytestmark = pytest.mark.skipif(SPEC is None, reason="verl is not installed")

AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
V1 = "verl.trainer.ppo.v1.trainer_base"
TQ = "verl.trainer.ppo.v1.agent_loop_tq"
SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"

HOOKS = [
    ("verl.utils.config", "validate_config", ["config"], False),
    (
        AGENT_LOOP,
        "AgentLoopWorker._run_agent_loop",
        ["self", "sampling_params", "trajectory"],
        True,
    ),
    (AGENT_LOOP, "AgentLoopWorker._agent_loop_postprocess", ["self", "output", "validate"], True),
    (AGENT_LOOP, "AgentLoopWorker.__init__", ["self", "config", "llm_client"], False),
    (AGENT_LOOP, "AgentLoopManager.__init__", ["self", "config", "llm_client"], False),
    (AGENT_LOOP, "AgentLoopManager._init_agent_loop_workers", ["self"], True),
    (TQ, "AgentLoopWorkerTQ._agent_loop_postprocess", ["self", "output", "validate"], True),
    ("verl.workers.rollout.llm_server", "LLMServerClient.generate", ["self", "request_id"], True),
    (
        "verl.workers.rollout.llm_server",
        "LLMServerClient._acquire_server",
        ["self", "request_id"],
        True,
    ),
    (
        "verl.trainer.ppo.v1.agent_loop_tq",
        "AgentLoopManagerTQ.generate_sequences",
        ["self", "prompts"],
        False,
    ),
    (V1, "PPOTrainer.__init__", ["self", "config"], False),
    (V1, "PPOTrainer._init_tokenizer", ["self"], False),
    (V1, "PPOTrainer._build_replay_buffer", ["self"], False),
    (
        V1,
        "PPOTrainer._dump_generations",
        ["self", "inputs", "outputs", "gts", "scores", "reward_extra_infos_dict", "dump_path"],
        False,
    ),
    (V1, "PPOTrainer._validate", ["self"], False),
    (
        V1,
        "PPOTrainer._maybe_log_val_generations",
        ["self", "inputs", "outputs", "scores"],
        False,
    ),
    (
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer.sample",
        ["self", "global_steps", "partition_id", "batch_size"],
        False,
    ),
    (V1, "PPOTrainer._update_actor", ["self", "batch", "metrics"], False),
    (V1, "PPOTrainer._update_critic", ["self", "batch", "metrics"], False),
    (V1, "PPOTrainer._compute_advantage", ["self", "batch", "metrics"], False),
    (
        "verl.trainer.ppo.v1.utils",
        "compute_advantage_for_multi_trajectories",
        ["data", "batch_keys", "adv_estimator"],
        False,
    ),
    ("verl.workers.utils.losses", "ppo_loss", ["config", "model_output", "data"], False),
    (
        "verl.workers.engine.fsdp.transformer_impl",
        "FSDPEngine.forward_backward_batch",
        ["self", "data"],
        False,
    ),
    (V1, "PPOTrainer._setup", ["self"], False),
    (V1, "PPOTrainer._init_resource_pool_mgr", ["self"], False),
    (V1, "PPOTrainer.fit", ["self", "agent_loop_manager"], False),
    ("verl.workers.engine_workers", "ActorRolloutRefWorker.init_model", ["self"], False),
    ("verl.workers.engine_workers", "TrainingWorker.set_loss_fn", ["self", "loss_fn"], False),
    ("verl.workers.rollout.replica", "RolloutReplicaRegistry.register", ["cls", "name"], False),
    (SERVER, "vLLMReplica.__init__", ["self", "replica_rank", "config"], False),
    (V1, "register_trainer", ["name"], False),
    (V1, "get_trainer_cls", ["name"], False),
    (SERVER, "vLLMHttpServer.__init__", ["self", "config"], False),
    (SERVER, "vLLMHttpServer.run_server", ["self", "args"], True),
    (SERVER, "vLLMHttpServer.generate", ["self", "prompt_ids", "sampling_params"], True),
    (SERVER, "vLLMHttpServer.collective_rpc", ["self", "method"], True),
]


INHERITED = {
    f"{TQ}.AgentLoopManagerTQ._init_agent_loop_workers": (
        f"{AGENT_LOOP}.AgentLoopManager._init_agent_loop_workers"
    ),
}
"""Methods that a class has from another one."""


@pytest.mark.parametrize(("module", "path", "arguments", "is_async"), HOOKS)
def test_hook_is_where_it_was(module: str, path: str, arguments: list[str], is_async: bool) -> None:
    hook = function_of(module, path)
    assert [argument.arg for argument in hook.args.args][: len(arguments)] == arguments
    assert isinstance(hook, ast.AsyncFunctionDef) is is_async


def test_everything_that_is_patched_or_extended_is_among_the_hooks() -> None:
    hooks = {f"{module}.{path}" for module, path, *_ in HOOKS}
    for inherited, own in INHERITED.items():
        assert inherited in hooks or own in hooks
    assert set(plugin.PATCHED) <= hooks
    for owner, ours in configuration.EXTENDED.items():
        for method in mixins.extended(ours):
            hook = f"{owner}.{method}"
            assert INHERITED.get(hook, hook) in hooks, hook


def test_mask_is_narrowed_before_the_loss_mask_is_copied_from_it() -> None:
    body = source_of("verl.trainer.ppo.v1.agent_loop_tq")
    assert 'field["loss_mask"] = field["response_mask"]' in body
    assert body.index("_agent_loop_postprocess") < body.index('field["loss_mask"]')


def test_resuming_client_sends_the_same_request_with_the_response_so_far() -> None:
    body = source_of("verl.workers.rollout.llm_server")
    client = body[body.index("class FullyAsyncLLMServerClient") :]
    assert "prompt_ids=prompt_ids + final_output.token_ids," in client
    assert "sampling_params = dict(sampling_params)" in client
    changed = re.findall(r"sampling_params\[(\w+)\] = ", client)
    assert set(changed) == {"limit_key"}


def test_answers_of_servers_are_overheard_where_the_client_acquires_them() -> None:
    """The client for one call has an ``_acquire_server`` of its own, in both of verl's classes."""
    body = source_of("verl.workers.rollout.llm_server")
    assert "server_id, server = await self._acquire_server(" in body
    assert "await server.generate.remote(" in body
    resuming = body[body.index("class FullyAsyncLLMServerClient") :]
    assert "output = await super().generate(" in resuming


def test_nothing_comes_between_the_advantages_and_the_update() -> None:
    body = source_of(V1)
    step = body[body.index("def _step_once") :]
    assert step.index("self._compute_advantage(") < step.index("self._update_actor(")


def test_trainers_that_interrupt_pass_where_batches_are_checked() -> None:
    for module, modes in (
        ("verl.trainer.ppo.v1.trainer_sync", ["sync"]),
        ("verl.trainer.ppo.v1.trainer_colocate_async", ["colocate_async"]),
        ("verl.trainer.ppo.v1.trainer_separate_async", ["separate_async"]),
    ):
        body = source_of(module)
        assert re.findall(r'@register_trainer\("(\w+)"\)', body) == modes
        assert set(modes) <= set(MODES)
        for hook in (
            "_init_tokenizer",
            "_build_replay_buffer",
            "_compute_advantage",
            "_update_actor",
            "_dump_generations",
            "_validate",
            "fit",
        ):
            assert f"def {hook}" not in body
    replay = source_of("verl.trainer.ppo.v1.replay_buffer")
    assert replay.count("    def sample(") == 2  # of the synchronous and the asynchronous buffer


def test_validation_takes_its_prompts_where_they_are_addressed() -> None:
    said = ast.unparse(function_of(V1, "PPOTrainer._validate"))
    assert " in self.val_dataloader:" in said
    assert "self._dump_generations(inputs=" in said
    assert "self._maybe_log_val_generations(inputs=" in said


def test_sessions_advantages_are_computed_where_they_are_replaced() -> None:
    said = ast.unparse(function_of(V1, "PPOTrainer._compute_advantage"))
    assert "data = compute_advantage_for_multi_trajectories(data, batch_keys=" in said
    assert "adv_estimator=self.config.algorithm.adv_estimator" in said


def test_modules_that_a_run_is_refused_without_exist() -> None:
    assert missing_modules(configuration.MODULES) == []
    assert missing_modules(["verl.trainer.ppo.v1.renamed"]) == ["verl.trainer.ppo.v1.renamed"]


def test_mode_is_looked_up_by_the_name_that_the_driver_gave_it() -> None:
    """And nothing reads it between the driver and the trainer that gives it its own name back."""
    body = source_of("verl.trainer.main_ppo")
    assert body.count("trainer_mode") == 1
    assert "trainer_cls = get_trainer_cls(config.trainer.v1.trainer_mode)" in body


def test_manager_that_the_configuration_names_is_created() -> None:
    said = source_of("verl.trainer.main_ppo")
    assert '.rollout.get("agent", {}).get("agent_loop_manager_class")' in said
    assert "load_class_from_fqn(manager_class_fqn, " in said
    assert re.search(r"\w+\.create\(\n\s+config=self\.config,", said)


def test_prefix_grouper_takes_the_mask_of_trained_tokens_for_the_response() -> None:
    """It goes by the mask where it puts prompts and responses together: the flag is refused."""
    body = source_of("verl.trainer.ppo.prefix_grouper_utils")
    assert "suffix_mask=response_mask" in body
    assert "concat_input(prefix_ids, prefix_mask, responses, response_mask)" in body


def test_term_of_imitation_is_added_where_the_worker_has_its_loss() -> None:
    said = ast.unparse(
        function_of("verl.workers.engine_workers", "ActorRolloutRefWorker.init_model")
    )
    assert "self.loss_fn = partial(ppo_loss, config=actor_config)" in said
    assert "self.actor.set_loss_fn(self.loss_fn)" in said


def test_installed_verl_is_of_the_tested_series() -> None:
    assert check_version("verl", importlib.metadata.version("verl")) == ""


def test_ids_are_masked_by_a_compute_logits_on_the_engines_model() -> None:
    """What the drafts of a speculative engine follow: see ``SpeculativeState``."""
    source = source_of("verl.workers.rollout.vllm_rollout.utils")
    every_model = source.split("def _iter_all_models(")[1].split("\n    def ")[0]
    assert "yield self.model_runner.model\n        if self._use_mtp_drafter" in every_model
    assert "model.compute_logits = MethodType(compute_logits, model)" in source
