"""The hooks in OpenRLHF that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util

import pytest
from foreign_source import function_of, source_of

from tandem_openrlhf.patches import PATCHES
from tandem_openrlhf.presence import _DRIVERS
from tandem_plugin.patching.after_import import missing_modules
from tandem_plugin.patching.versions import check_version

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openrlhf") is None,
    reason="OpenRLHF is not installed: make test-openrlhf",
)

STRATEGY = "openrlhf.utils.deepspeed.deepspeed"
AGENT = "openrlhf.utils.agent"
SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
ACTOR = "openrlhf.trainer.ray.ppo_actor"

HOOKS = [
    (STRATEGY, "DeepspeedStrategy.__init__", ["self"], False),
    (STRATEGY, "DeepspeedStrategy.backward", ["self", "loss", "model"], False),
    (AGENT, "SingleTurnAgentExecutor.execute", ["self", "prompt", "label"], True),
    (AGENT, "MultiTurnAgentExecutor.execute", ["self", "prompt", "label"], True),
    (SAMPLES, "SamplesGenerator._dispatch_prompts_to_vllm", ["self", "prompts", "labels"], False),
    (SAMPLES, "SamplesGenerator.generate_eval_samples", ["self"], False),
    (SAMPLES, "SamplesGenerator._process_response_into_experience", ["self", "response"], False),
    (MAKER, "RemoteExperienceMaker.__init__", ["self"], False),
    (MAKER, "RemoteExperienceMaker.make_experience_batch", ["self", "rollout_samples"], False),
    ("openrlhf.trainer.ppo_trainer", "BasePPOTrainer.init_checkpoint_states", ["self"], False),
    ("openrlhf.trainer.ppo_trainer", "BasePPOTrainer.train_step", ["self"], False),
    (
        "openrlhf.trainer.ppo_trainer_async",
        "GenerateSamplesActor.fit",
        ["self", "episode", "total_consumed_prompts"],
        False,
    ),
    ("openrlhf.models.utils", "masked_mean", ["tensor", "mask", "dim"], False),
    (
        "openrlhf.models.loss",
        "aggregate_loss",
        ["loss", "loss_mask", "token_level_loss", "dp_size", "batch_num_tokens"],
        False,
    ),
    (ACTOR, "ActorPPOTrainer.training_step", ["self", "experience", "kl_ctl", "step"], False),
    ("openrlhf.models.actor", "Actor.forward", ["self", "sequences", "action_mask"], False),
    (
        "openrlhf.utils.loss_utils",
        "iter_grad_accum_global_norm",
        ["data_iter", "strategy", "accumulated_gradient", "mask_fn"],
        False,
    ),
    (
        "openrlhf.trainer.ppo_utils.replay_buffer",
        "NaiveReplayBuffer.setup_dynamic_batch",
        ["self", "strategy"],
        False,
    ),
    ("openrlhf.trainer.ppo_utils.experience", "tensor_field", ["role"], False),
    ("openrlhf.trainer.ray.vllm_engine", "create_vllm_engines", ["num_engines"], False),
    ("openrlhf.trainer.ray.vllm_engine", "RolloutRayActor.update_weight", ["self", "name"], True),
]


@pytest.mark.parametrize(("module", "path", "arguments", "is_async"), HOOKS)
def test_hook_is_where_it_was(module: str, path: str, arguments: list[str], is_async: bool) -> None:
    hook = function_of(module, path)
    assert [argument.arg for argument in hook.args.args][: len(arguments)] == arguments
    assert isinstance(hook, ast.AsyncFunctionDef) is is_async


def test_every_patched_module_is_among_the_hooks() -> None:
    assert {module for module, _ in PATCHES} <= {module for module, *_ in HOOKS}


def test_names_that_a_patch_replaces_in_a_module_are_looked_up_there() -> None:
    assert "iter_grad_accum_global_norm(" in source_of(ACTOR)
    assert "RolloutRayActor.options(" in source_of("openrlhf.trainer.ray.vllm_engine")
    assert "class Experience:" in source_of("openrlhf.trainer.ppo_utils.experience")


def test_patches_wait_for_modules_that_exist() -> None:
    assert missing_modules(module for module, _ in PATCHES) == []
    assert missing_modules(_DRIVERS) == []
    assert missing_modules(["openrlhf.trainer.ray.renamed"]) == ["openrlhf.trainer.ray.renamed"]


def test_command_starts_ray_by_the_call_that_tandem_amends() -> None:
    assert "        ray.init(\n            runtime_env={" in source_of("openrlhf.cli.train_ppo_ray")


def test_installed_openrlhf_is_of_the_tested_series() -> None:
    assert check_version("openrlhf", importlib.metadata.version("openrlhf")) == ""
