"""The places in SkyRL that the adapter stands on: this fails when one moves."""

from __future__ import annotations

import importlib
import inspect

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed")

HOOKS = [
    ("train.entrypoints.main_base", "BasePPOExp.run", ["self"]),
    (
        "train.entrypoints.main_base",
        "BasePPOExp.get_generator",
        ["self", "cfg", "tokenizer", "inference_engine_client"],
    ),
    (
        "train.entrypoints.main_base",
        "BasePPOExp.get_trainer",
        [
            *("self", "cfg", "tracker", "tokenizer", "train_dataset", "eval_dataset"),
            *("inference_engine_client", "generator", "colocate_pg"),
        ],
    ),
    (
        "train.generators.skyrl_gym_generator",
        "SkyRLGymGenerator.generate",
        ["self", "input_batch", "disable_tqdm"],
    ),
    (
        "train.generators.skyrl_gym_generator",
        "SkyRLGymGenerator.agent_loop",
        [
            *("self", "prompt", "env_class", "env_extras", "max_tokens", "max_input_length"),
            *("sampling_params", "trajectory_id", "cache_salt", "training_phase"),
        ],
    ),
    (
        "train.generators.skyrl_gym_generator",
        "SkyRLGymGenerator.generate_batched",
        [
            *("self", "prompts", "env_classes", "env_extras", "max_tokens", "sampling_params"),
            *("cache_salt", "training_phase"),
        ],
    ),
    (
        "backends.skyrl_train.inference_servers.remote_inference_client",
        "RemoteInferenceClient.generate",
        ["self", "input_batch", "model"],
    ),
    (
        "train.trainer",
        "RayPPOTrainer.convert_to_training_input",
        ["self", "generator_output", "uids"],
    ),
    ("train.trainer", "RayPPOTrainer.compute_advantages_and_returns", ["self", "data"]),
    ("train.trainer", "RayPPOTrainer.train_critic_and_policy", ["self", "data"]),
    ("train.trainer", "RayPPOTrainer.eval", ["self", "vllm_metrics_scraper"]),
    ("train.trainer", "RayPPOTrainer.save_checkpoints", ["self"]),
    ("train.trainer", "RayPPOTrainer.save_models", ["self"]),
    ("train.trainer", "RayPPOTrainer.load_checkpoints", ["self"]),
    ("train.utils", "validate_cfg", ["cfg"]),
    ("train.utils.utils", "initialize_ray", ["cfg"]),
    ("train.config", "SkyRLTrainConfig.from_cli_overrides", ["args"]),
    (
        "backends.skyrl_train.inference_servers.utils",
        "resolve_policy_model_name",
        ["cfg"],
    ),
    ("backends.skyrl_train.utils.ppo_utils", "masked_whiten", ["values", "mask"]),
]


@pytest.mark.parametrize(("module", "name", "parameters"), HOOKS)
def test_hook_is_where_the_adapter_expects_it(
    module: str, name: str, parameters: list[str]
) -> None:
    found = importlib.import_module(f"skyrl.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    assert list(inspect.signature(found).parameters)[: len(parameters)] == parameters


SOURCES = {
    "train.entrypoints.main_base": (
        "self.get_generator(self.cfg, self.tokenizer, inference_engine_client)",
        "trainer = self.get_trainer(",
        'if arg.startswith("trainer.override_entrypoint="):',
        "return import_module(override_entrypoint).main()",
    ),
    "train.generators.skyrl_gym_generator": (
        "self.agent_loop(",
        "trajectory_id=trajectory_ids[i] if trajectory_ids is not None else None,",
        "await self.inference_engine_client.generate(engine_input, model=self.policy_model_name)",
        '"loss_masks": loss_masks,',
        '"rollout_logprobs": rollout_logprobs,',
    ),
    "train.trainer": (
        "generator_output: GeneratorOutput = await self.generator.generate(input_batch)",
        "self.convert_to_training_input(generator_output, uids)",
        "training_input = self.compute_advantages_and_returns(training_input)",
        "status = self.train_critic_and_policy(training_input)",
        '"loss_mask": loss_masks_tensor,',
        "training_input = pad_training_input_batch(training_input, pad_size)",
        'f"global_step_{self.global_step}", "policy"',
        "eval_metrics = await self.eval()",
    ),
    "train.fully_async_trainer": (
        "self.epoch = epoch",
        "return self.convert_to_training_input(generator_output, uids)",
        "training_input = self.compute_advantages_and_returns(training_input)",
        "await asyncio.to_thread(self.train_critic_and_policy, training_input)",
        "await self.generator.generate(",
    ),
    "backends.skyrl_train.inference_servers.utils": (
        "get_config_as_dict(ie_cfg.engine_init_kwargs)",
        "setattr(args, key, value)",
    ),
    "train.generators.utils": ('_flatten_field(generator_outputs, "response_ids")',),
}
"""What the adapter relies on of SkyRL's functions: who calls whom, and with what."""


@pytest.mark.parametrize("module", SOURCES)
def test_what_the_adapter_reads_of_skyrl_is_there(module: str) -> None:
    source = inspect.getsource(importlib.import_module(f"skyrl.{module}"))
    assert [text for text in SOURCES[module] if text not in source] == []


def test_responses_keep_their_rows_between_generation_and_update() -> None:
    """SkyRL drops, repeats and concatenates them, and copies none."""
    from skyrl.train.generators.utils import concatenate_generator_outputs
    from skyrl.train.utils.trainer_utils import filter_generator_output

    class Kept(list[int]):
        pass

    def output(responses: list[Kept]) -> dict[str, object]:
        n = len(responses)
        return {
            "prompt_token_ids": [[1]] * n,
            "response_ids": responses,
            "rewards": [[0.0] * len(one) for one in responses],
            "loss_masks": [[1] * len(one) for one in responses],
            "stop_reasons": ["stop"] * n,
            "rollout_metrics": {},
            "rollout_logprobs": None,
        }

    first, second = [Kept([1, 2]), Kept([3])], [Kept([4, 5])]
    both = concatenate_generator_outputs([output(first), output(second)])
    assert all(map(lambda a, b: a is b, both["response_ids"], [*first, *second]))
    kept = filter_generator_output(both, [2, 0, 0])
    assert all(map(lambda a, b: a is b, kept["response_ids"], [second[0], first[0], first[0]]))
