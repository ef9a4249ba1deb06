"""The hooks in verl that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import ast
import importlib.metadata
import re

import pytest
from foreign_source import function_of, source_of
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
from verl_hooks import EVERY, HOOKS, MAIN, TQ, V1

from tandem_plugin.patching import subclasses
from tandem_plugin.patching.versions import check_version
from tandem_verl import engine, rollouts, trainer
from tandem_verl.settings import MODES

EXTENDED = {
    "AgentLoopManagerTQ AgentLoopManager": rollouts.ManagerInTandem,
    "AgentLoopWorker": rollouts.WorkerInTandem,
    "vLLMReplica": engine.ReplicaInTandem,
    "vLLMHttpServer": engine.ServerInTandem,
    "PPOTrainer": trainer.TrainerInTandem,
}
"""The classes of verl that have subclasses of ours, and with what."""


@pytest.mark.parametrize(("module", "path", "arguments"), EVERY)
def test_hook_is_where_it_was(module: str, path: str, arguments: str) -> None:
    hook = function_of(module, path.removeprefix("async "))
    expected = arguments.split()
    assert [argument.arg for argument in hook.args.args][: len(expected)] == expected
    assert isinstance(hook, ast.AsyncFunctionDef) is path.startswith("async ")


def test_everything_that_is_extended_is_among_the_hooks() -> None:
    hooks = {path.removeprefix("async ") for _, path, _ in EVERY}
    for owner, ours in EXTENDED.items():
        for method in subclasses.extended(ours):
            assert {f"{name}.{method}" for name in owner.split()} & hooks, (owner, method)


WORKERS = "verl.workers.engine_workers"
DATASET = "verl.utils.dataset.rl_dataset"
GROUPER = "verl.trainer.ppo.prefix_grouper_utils"
SAID = [
    # A checkpoint is written to, and resumed from, the folder that tandem notes its settings in.
    (f"{V1}:PPOTrainer._save_checkpoint", "global_step_{self.global_steps}"),
    (
        f"{V1}:PPOTrainer._load_checkpoint",
        "_folder = self.config.trainer.resume_from_path",
    ),
    # Data sets are read before workers are created, and say where their images are.
    (f"{V1}:PPOTrainer._init_dataloader", "self.train_dataset = create_rl_dataset("),
    (f"{V1}:PPOTrainer._init_dataloader", "self.val_dataset = create_rl_dataset("),
    *(
        (f"{DATASET}:RLHFDataset._build_messages", f"example.get(self.{kind}_key, None) or []")
        for kind in ("image", "video", "audio")
    ),
    # Validation takes its prompts where they are addressed.
    (f"{V1}:PPOTrainer._validate", " in self.val_dataloader:"),
    (f"{V1}:PPOTrainer._validate", "self._dump_generations(inputs="),
    # The manager that the configuration names is created, and the trainer that it names.
    (MAIN, '.rollout.get("agent", {}).get("agent_loop_manager_class")'),
    (MAIN, "load_class_from_fqn(manager_class_fqn, "),
    (MAIN, "trainer_cls = get_trainer_cls(config.trainer.v1.trainer_mode)"),
    # Prefix grouping takes the mask of trained tokens for the response: the flag is refused.
    (GROUPER, "suffix_mask=response_mask"),
    (GROUPER, "concat_input(prefix_ids, prefix_mask, responses, response_mask)"),
    # The term of imitation is added where the worker has its loss.
    (f"{WORKERS}:ActorRolloutRefWorker.init_model", "self.loss_fn = partial(ppo_loss, config="),
    (f"{WORKERS}:ActorRolloutRefWorker.init_model", "self.actor.set_loss_fn(self.loss_fn)"),
]


@pytest.mark.parametrize(("place", "line"), SAID)
def test_verl_does_there_what_the_adapter_counts_on(place: str, line: str) -> None:
    module, _, path = place.partition(":")
    assert line in (ast.unparse(function_of(module, path)) if path else source_of(module))


def test_data_sets_are_read_before_workers_are_created() -> None:
    setup = ast.unparse(function_of(V1, "PPOTrainer._setup"))
    assert setup.index("self._init_dataloader()") < setup.index("RayClassWithInitArgs(")


def test_masks_are_narrowed_copied_and_updated_in_this_order() -> None:
    made = source_of(TQ)
    assert 'field["loss_mask"] = field["response_mask"]' in made
    assert made.index("_agent_loop_postprocess") < made.index('field["loss_mask"]')
    step = source_of(V1).partition("def _step_once")[2]
    assert step.index("self._compute_advantage(") < step.index("self._update_actor(")


def test_resuming_client_sends_the_same_request_with_the_response_so_far() -> None:
    body = source_of("verl.workers.rollout.llm_server")
    client = body[body.index("class FullyAsyncLLMServerClient") :]
    assert "prompt_ids=prompt_ids + final_output.token_ids," in client
    assert "sampling_params = dict(sampling_params)" in client
    changed = re.findall(r"sampling_params\[(\w+)\] = ", client)
    assert set(changed) == {"limit_key"}


@pytest.mark.parametrize("mode", MODES)
def test_trainers_that_interrupt_pass_where_batches_are_checked(mode: str) -> None:
    body = source_of(f"verl.trainer.ppo.v1.trainer_{mode}")
    assert re.findall(r'@register_trainer\("(\w+)"\)', body) == [mode]
    inherited = [path.partition(".")[2] for path in HOOKS[V1] if path.startswith("PPOTrainer._")]
    for hook in {"fit", *inherited} - {"__init__", "_setup", "_init_resource_pool_mgr"}:
        assert f"def {hook}(" not in body
    replay = source_of("verl.trainer.ppo.v1.replay_buffer")
    assert replay.count("    def sample(") == 2  # of the synchronous and the asynchronous buffer


def test_nothing_reads_the_mode_between_the_driver_and_the_trainer() -> None:
    """Which gives it its own name back."""
    assert source_of(MAIN).count("trainer_mode") == 1
    assert re.search(r"\w+\.create\(\n\s+config=self\.config,", source_of(MAIN))


def test_method_that_builds_the_model_is_still_dispatched_to_every_worker() -> None:
    from tandem_verl.loss import WrappingWorker

    attributes = getattr(WrappingWorker.init_model, MAGIC_ATTR)
    assert attributes["dispatch_mode"] == Dispatch.ONE_TO_ALL


def test_installed_verl_is_of_the_tested_series() -> None:
    assert check_version("verl", importlib.metadata.version("verl")) == ""


def test_ids_are_masked_by_a_compute_logits_on_the_engines_model() -> None:
    """What the drafts of a speculative engine follow: see ``SpeculativeState``."""
    source = source_of("verl.workers.rollout.vllm_rollout.utils")
    every_model = source.split("def _iter_all_models(")[1].split("\n    def ")[0]
    assert "yield self.model_runner.model\n        if self._use_mtp_drafter" in every_model
    assert "model.compute_logits = MethodType(compute_logits, model)" in source
