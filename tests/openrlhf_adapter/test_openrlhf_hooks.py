"""The hooks in OpenRLHF that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util

import pytest
from foreign_source import function_of, source_of

from tandem_openrlhf.patches import patches_of
from tandem_openrlhf.refusals import ARGUMENTS
from tandem_openrlhf.train_ppo_ray import _DRIVERS
from tandem_plugin import TandemConfig
from tandem_plugin.patching.after_import import missing_modules
from tandem_plugin.patching.versions import check_version
from tandem_plugin.training.command import split_arguments

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openrlhf") is None,
    reason="OpenRLHF is not installed: make test-openrlhf",
)

ENGINE = "openrlhf.trainer.ray.vllm_engine"
EXPERIENCE = "openrlhf.trainer.ppo_utils.experience"
SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
ACTOR = "openrlhf.trainer.ray.ppo_actor"
TRAINER = "openrlhf.trainer.ppo_trainer"
ASYNC = "openrlhf.trainer.ppo_trainer_async"

HOOKS = [
    (ENGINE, "RolloutRayActor.__init__", ["self"], True),
    (ENGINE, "RolloutRayActor.generate", ["self", "prompt_token_ids", "sampling_params"], True),
    (
        ENGINE,
        "RolloutRayActor.generate_responses",
        ["self", "prompt", "label", "sampling_params"],
        True,
    ),
    (ENGINE, "RolloutRayActor.get_num_unfinished_requests", ["self"], False),
    (ENGINE, "RolloutRayActor.update_weight", ["self", "name"], True),
    (ENGINE, "create_vllm_engines", ["num_engines"], False),
    (SAMPLES, "SamplesGenerator._dispatch_prompts_to_vllm", ["self", "prompts", "labels"], False),
    (SAMPLES, "SamplesGenerator.generate_eval_samples", ["self"], False),
    (SAMPLES, "SamplesGenerator._process_response_into_experience", ["self", "response"], False),
    (MAKER, "RemoteExperienceMaker.__init__", ["self"], False),
    (MAKER, "RemoteExperienceMaker.make_experience_batch", ["self", "rollout_samples"], False),
    (TRAINER, "BasePPOTrainer.init_checkpoint_states", ["self"], False),
    (TRAINER, "BasePPOTrainer.train_step", ["self"], False),
    (
        ASYNC,
        "GenerateSamplesActor.fit",
        ["self", "episode", "total_consumed_prompts"],
        False,
    ),
    ("openrlhf.models.utils", "masked_mean", ["tensor", "mask", "dim"], False),
    (
        ACTOR,
        "ActorPPOTrainer.training_step",
        ["self", "experience", "kl_ctl", "step", "loss_batch_info"],
        False,
    ),
    (ACTOR, "ActorPPOTrainer._init_vllm_sync_group", ["self", "backend"], False),
    (ACTOR, "PolicyModelActor.init_model_from_pretrained", ["self", "strategy"], False),
    ("openrlhf.models.actor", "Actor.forward", ["self", "sequences", "action_mask"], False),
    (
        "openrlhf.utils.deepspeed.deepspeed",
        "DeepspeedStrategy.backward",
        ["self", "loss", "model"],
        False,
    ),
    ("openrlhf.utils.loss_utils", "get_loss_batch_info", ["strategy", "loss_mask"], False),
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
    (EXPERIENCE, "tensor_field", ["role"], False),
]


EVERY = patches_of(TandemConfig.from_mapping({"lambda_jun": 0.1}))


@pytest.mark.parametrize(("module", "path", "arguments", "is_async"), HOOKS)
def test_hook_is_where_it_was(module: str, path: str, arguments: list[str], is_async: bool) -> None:
    hook = function_of(module, path)
    assert [argument.arg for argument in hook.args.args][: len(arguments)] == arguments
    assert isinstance(hook, ast.AsyncFunctionDef) is is_async


def test_every_patched_module_is_among_the_hooks() -> None:
    assert {module for module, _ in EVERY} <= {module for module, *_ in HOOKS}


def test_names_that_a_patch_replaces_in_a_module_are_looked_up_there() -> None:
    assert "iter_grad_accum_global_norm(" in source_of(ACTOR)
    assert "RolloutRayActor.options(" in source_of(ENGINE)
    assert "await self.llm.is_sleeping()" in source_of(ENGINE)
    assert "self.executor.execute(" in source_of(ENGINE)
    for sender in (SAMPLES, ENGINE):
        assert "label=label," in source_of(sender)
    assert "class Experience:" in source_of(EXPERIENCE)
    assert "self.trainer = ActorPPOTrainer(" in source_of(ACTOR)
    assert "self.experience_maker = RemoteExperienceMaker(" in source_of(TRAINER)
    for trainer in (TRAINER, ASYNC):
        assert "self.samples_generator = SamplesGenerator(" in source_of(trainer)


def test_experiences_say_which_samples_they_hold() -> None:
    """By which each row of advantages is found to be a sample's, once they are computed."""
    body = source_of(MAKER)
    assert "sample.index = [i]" in body
    made = body[body.index("def make_experience_batch") :]
    assert made.index("split_rollout_samples(") < made.index("compute_advantages_and_returns(")
    assert 'zero_pad_sequences(items, side="right"' in source_of(EXPERIENCE)


def test_arguments_that_tandem_reads_first_have_openrlhfs_types_and_defaults() -> None:
    tree = ast.parse(source_of("openrlhf.cli.train_ppo_ray"))
    theirs = {}
    for node in ast.walk(tree):
        is_flag = isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument"
        if is_flag and isinstance(node.args[0], ast.Constant):
            said = {one.arg: ast.unparse(one.value) for one in node.keywords}
            theirs[node.args[0].value] = {
                name: said[name] for name in ("type", "action", "default") if name in said
            }
    ours = {
        flag: {
            name: value.__name__ if isinstance(value, type) else repr(value)
            for name, value in options.items()
        }
        for flag, options in ARGUMENTS.items()
    }
    assert ours == {flag: theirs[flag] for flag in ARGUMENTS}
    assert split_arguments([*theirs]) == ({}, [*theirs])  # none looks like one of tandem's


def test_openrlhfs_own_command_rejects_flags_of_tandems() -> None:
    """Plain GRPO in the place of tandem would be silent."""
    assert "args = parser.parse_args()" in source_of("openrlhf.cli.train_ppo_ray")


def test_patches_wait_for_modules_that_exist() -> None:
    assert missing_modules(module for module, _ in EVERY) == []
    assert missing_modules(_DRIVERS) == []
    assert missing_modules(["openrlhf.trainer.ray.renamed"]) == ["openrlhf.trainer.ray.renamed"]


def test_command_starts_ray_by_the_call_that_tandem_amends() -> None:
    assert "        ray.init(\n            runtime_env={" in source_of("openrlhf.cli.train_ppo_ray")


def test_installed_openrlhf_is_of_the_tested_series() -> None:
    assert check_version("openrlhf", importlib.metadata.version("openrlhf")) == ""
