"""The hooks in OpenRLHF that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util

import pytest
from foreign_source import function_of, source_of

from tandem_openrlhf.patches import patches_of
from tandem_openrlhf.start import ARGUMENTS
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
COMMAND = "openrlhf.cli.train_ppo_ray"

HOOKS = {
    ENGINE: {
        "async RolloutRayActor.__init__": "self",
        "async RolloutRayActor.generate": "self prompt_token_ids sampling_params",
        "async RolloutRayActor.generate_responses": "self prompt label sampling_params",
        "RolloutRayActor.get_num_unfinished_requests": "self",
        "async RolloutRayActor.update_weight": "self name",
        "create_vllm_engines": "num_engines",
    },
    SAMPLES: {
        "SamplesGenerator._dispatch_prompts_to_vllm": "self prompts labels",
        "SamplesGenerator.generate_eval_samples": "self",
        "SamplesGenerator._process_response_into_experience": "self response",
    },
    MAKER: {
        "RemoteExperienceMaker.__init__": "self",
        "RemoteExperienceMaker.make_experience_batch": "self rollout_samples",
        "RemoteExperienceMaker.get_advantages_and_returns": "self values rewards action_mask",
    },
    TRAINER: {
        "BasePPOTrainer.init_checkpoint_states": "self",
        "BasePPOTrainer.train_step": "self",
        "BasePPOTrainer.fit": "self global_step",
        "PPOTrainer.evaluate": "self global_step",
        "BasePPOTrainer.save_logs_and_checkpoints": "self global_step",
        "BasePPOTrainer.save_best_checkpoint": "self eval_metrics global_step",
    },
    ASYNC: {"GenerateSamplesActor.fit": "self episode total_consumed_prompts"},
    "openrlhf.models.utils": {"masked_mean": "tensor mask dim"},
    ACTOR: {
        "ActorPPOTrainer.training_step": "self experience kl_ctl step loss_batch_info",
        "ActorPPOTrainer._init_vllm_sync_group": "self backend",
        "PolicyModelActor.init_model_from_pretrained": "self strategy",
    },
    "openrlhf.trainer.ray.ppo_critic": {
        "CriticPPOTrainer.training_step": "self experience step loss_batch_info",
        "CriticModelActor.init_model_from_pretrained": "self strategy",
    },
    "openrlhf.models.actor": {"Actor.forward": "self sequences action_mask"},
    "openrlhf.utils.deepspeed.deepspeed": {"DeepspeedStrategy.backward": "self loss model"},
    "openrlhf.utils.loss_utils": {
        "get_loss_batch_info": "strategy loss_mask",
        "iter_grad_accum_global_norm": "data_iter strategy accumulated_gradient mask_fn",
    },
    EXPERIENCE: {"tensor_field": "role"},
}
"""Methods and functions by module, with the names of their first arguments."""

EVERY = patches_of(TandemConfig.from_mapping({"lambda_jun": 0.1}))


@pytest.mark.parametrize(
    ("module", "path", "arguments"),
    [(module, *hook) for module, hooks in HOOKS.items() for hook in hooks.items()],
)
def test_hook_is_where_it_was(module: str, path: str, arguments: str) -> None:
    hook = function_of(module, path.removeprefix("async "))
    expected = arguments.split()
    assert [argument.arg for argument in hook.args.args][: len(expected)] == expected
    assert isinstance(hook, ast.AsyncFunctionDef) is path.startswith("async ")


def test_every_patched_module_is_among_the_hooks() -> None:
    assert {module for module, _ in EVERY} <= HOOKS.keys()


SAID = [
    # Names that a patch replaces in a module are looked up there.
    (ACTOR, "iter_grad_accum_global_norm("),
    (ACTOR, "self.trainer = ActorPPOTrainer("),
    (ENGINE, "RolloutRayActor.options("),
    (ENGINE, "await self.llm.is_sleeping()"),
    (ENGINE, "self.executor.execute("),
    (ENGINE, "label=label,"),
    (SAMPLES, "label=label,"),
    (EXPERIENCE, "class Experience:"),
    (TRAINER, "self.experience_maker = RemoteExperienceMaker("),
    (TRAINER, "self.samples_generator = SamplesGenerator("),
    (ASYNC, "self.samples_generator = SamplesGenerator("),
    # By which each row of advantages is found to be a sample's, once they are computed.
    (MAKER, "sample.index = [i]"),
    (EXPERIENCE, 'zero_pad_sequences(items, side="right"'),
    # OpenRLHF's own command rejects flags of tandem's: plain GRPO in its place would be silent.
    (COMMAND, "args = parser.parse_args()"),
    # The call by which it starts Ray, which tandem amends.
    (COMMAND, "        ray.init(\n            runtime_env={"),
]


@pytest.mark.parametrize(("module", "line"), SAID)
def test_openrlhf_does_there_what_the_adapter_counts_on(module: str, line: str) -> None:
    assert line in source_of(module)


def test_samples_are_split_before_their_advantages_are_computed() -> None:
    made = source_of(MAKER).partition("def make_experience_batch")[2]
    assert made.index("split_rollout_samples(") < made.index("compute_advantages_and_returns(")


def test_arguments_that_tandem_reads_first_have_openrlhfs_types_and_defaults() -> None:
    tree = ast.parse(source_of(COMMAND))
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


def test_patches_wait_for_modules_that_exist() -> None:
    assert missing_modules(module for module, _ in EVERY) == []
    assert missing_modules(["openrlhf.trainer.ray.renamed"]) == ["openrlhf.trainer.ray.renamed"]


def test_installed_openrlhf_is_of_the_tested_series() -> None:
    assert check_version("openrlhf", importlib.metadata.version("openrlhf")) == ""
