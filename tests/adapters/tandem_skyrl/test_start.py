"""What a SkyRL run may not combine with tandem, and where tandem's settings are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from made_runs import command_of, made_run
from refused import refused
from started import started

pytest.importorskip("skyrl", reason="SkyRL is not installed")

from skyrl.train.config import AlgorithmConfig, SkyRLTrainConfig, make_config
from skyrl.train.utils import validate_cfg

from tandem_plugin import TandemConfig
from tandem_plugin.training.command import settings_of_command, split_arguments
from tandem_plugin.unsupported import is_on, option_of
from tandem_skyrl import experiment
from tandem_skyrl.__main__ import main
from tandem_skyrl.experiment import TandemExp
from tandem_skyrl.settings import put_settings, settings_of
from tandem_skyrl.start import SOUND_ESTIMATORS, SOUND_LOSSES, SkyRLSettings, warn_of_colocation

ONE_MESSAGE = "generator.use_conversation_multi_turn=false"
MODEL = str(Path(__file__).parent)  # no checkpoint


def check_run(cfg: Any, config: TandemConfig) -> None:
    started(SkyRLSettings.of(cfg), config)
    warn_of_colocation(cfg)


def made(*settings: str) -> Any:
    own = ["trainer.policy.model.path=organisation/model", "trainer.placement.colocate_all=false"]
    return SkyRLTrainConfig.from_cli_overrides([*own, *settings])


def tandem(**settings: Any) -> TandemConfig:
    return TandemConfig.from_mapping({"schedule": "word", **settings})


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        *(([f"trainer.algorithm.advantage_estimator={one}"], []) for one in SOUND_ESTIMATORS),
        *(([f"trainer.algorithm.policy_loss_type={one}"], []) for one in SOUND_LOSSES),
        (["trainer.algorithm.advantage_estimator=gae"], ["estimator"]),
        (["trainer.strategy=megatron"], ["strategy"]),
        (["generator.inference_engine.enable_pd=true"], ["engine"]),
        (["generator.step_wise_trajectories=true"], []),
        (["generator.use_conversation_multi_turn=false"], []),
        (["generator.sampling_params.stop=['a']"], []),
        (["generator.batched=true"], []),
        ([ONE_MESSAGE, "generator.sampling_params.stop=['a']"], []),
        (["trainer.fully_async.enabled=true"], []),
        (["trainer.fully_async.sample_full_batch=true"], ["asynchronous"]),
        (["trainer.algorithm.dynamic_sampling.type=filter"], []),
    ],
)
def test_sound_settings_pass(settings: list[str], allowed: list[str]) -> None:
    check_run(made(*settings), tandem(unproven=allowed))


SUPPORT = "generator.inference_engine.enable_return_sample_support_set"


@pytest.mark.parametrize(
    ("settings", "own", "code", "key"),
    [
        ([], {"lambda_jun": 0.1}, "skyrl-imitation-unsupported", "tandem.lambda_jun"),
        (
            ["generator.merge_stepwise_output=true"],
            {},
            "skyrl-merge-unsupported",
            "generator.merge_stepwise_output",
        ),
        (
            ["generator.vision_language_generator=true"],
            {},
            "skyrl-images-unsupported",
            "generator.vision_language_generator",
        ),
        (
            ["trainer.policy.model.lora.rank=8"],
            {},
            "skyrl-adapter-unsupported",
            "trainer.policy.model.lora.rank",
        ),
        *(
            ([f"{key}={value}"], {}, "skyrl-setting-untested", key)
            for key, value in (
                ("generator.inference_engine.enable_pd", "true"),
                ("generator.inference_engine.enable_return_routed_experts", "true"),
                ("generator.inference_engine.offload_kv_for_weight_sync", "true"),
                ("trainer.mtp.enabled", "true"),
                ("trainer.fully_async.sample_full_batch", "true"),
                ("generator.inference_engine.speculative_config.method", "mtp"),
            )
        ),
        (
            [f"{SUPPORT}=true", "generator.sampling_params.top_k=20"],
            {},
            "skyrl-setting-untested",
            SUPPORT,
        ),
        (["trainer.strategy=megatron"], {}, "trainer-setting-untested", "trainer.strategy"),
        (
            ["trainer.algorithm.dynamic_sampling.type=replace"],
            {},
            "trainer-setting-untested",
            "trainer.algorithm.dynamic_sampling.type",
        ),
        (
            ["trainer.algorithm.advantage_estimator=gae"],
            {"unproven": ["loss"]},
            "trainer-setting-untested",
            "trainer.algorithm.advantage_estimator",
        ),
        (
            ["trainer.algorithm.policy_loss_type=cross_entropy"],
            {},
            "trainer-setting-untested",
            "trainer.algorithm.policy_loss_type",
        ),
    ],
)
def test_setting_is_rejected(settings: list[str], own: Any, code: str, key: str) -> None:
    with refused(code) as caught:
        check_run(made(*settings), tandem(**own))
    assert key.startswith(str(caught.value.fields["key"]))


def test_every_setting_of_the_table_exists_in_skyrl() -> None:
    """Of those that are on by themselves, none is rejected."""
    cfg = made()
    for one in SkyRLSettings.unsupported:
        *path, name = one.option.split(".")
        if path and path[0] != "tandem":
            assert hasattr(option_of(cfg)(".".join(path)), name), one.option
            assert not (one.rejects is is_on and option_of(cfg)(one.option)), one.option


def test_colocated_engines_and_changed_sampling_are_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_run(made(), tandem())
    assert "WARNING" not in capsys.readouterr().err
    check_run(
        made("trainer.placement.colocate_all=true", "generator.sampling_params.top_p=0.5"),
        tandem(),
    )
    said = capsys.readouterr().err
    assert said.count("colocate_all=true") == 1
    assert "generator.sampling_params.top_p=0.5" in said


def test_junior_that_is_not_there_is_rejected() -> None:
    with refused("junior-not-checkpoint", junior=MODEL):
        check_run(made(), tandem(junior=MODEL))


def test_settings_travel_in_skyrls_own_beside_what_is_there() -> None:
    arguments = "generator.inference_engine.engine_init_kwargs"
    cfg = made(f"{arguments}.additional_config.other=1", f"{arguments}.max_model_len=9")
    config = tandem(p=0.3, seed=7, unproven=["loss"])
    put_settings(cfg, config)
    given = cfg.generator.inference_engine.engine_init_kwargs
    assert given["max_model_len"] == 9
    assert given["additional_config"]["other"] == 1
    assert given["additional_config"]["tandem"]["require"] is True
    assert given["logprobs_mode"] == "processed_logprobs"
    found = settings_of(cfg)
    assert (found.make_schedule(), found.seed) == (config.make_schedule(), 7)


def test_experiment_without_settings_is_rejected() -> None:
    with refused("skyrl-settings-lost"):
        settings_of(made())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["trainer.epochs=1"], "tandem-settings-missing"),
        (["--tandem.schedul", "word"], "setting-unknown"),
        (
            ["--tandem.schedule", "word", "generator.merge_stepwise_output=true"],
            "skyrl-merge-unsupported",
        ),
    ],
)
def test_command_rejects_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: str
) -> None:
    entry = "trainer.override_entrypoint=tandem_skyrl.__main__"
    monkeypatch.setattr(sys, "argv", ["main_base", entry, *arguments])
    with pytest.raises(SystemExit, match=code):
        main()


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("trainer.algorithm.policy_los_type=gspo", "Invalid fields {'policy_los_type'}"),
        ("trainr.epochs=1", "Invalid fields {'trainr'}"),
        ("generator.inference_engine.engine_kwargs.seed=1", "Invalid fields {'engine_kwargs'}"),
        ("+trainer.own=1", "The '+' prefix for adding new config fields is not supported"),
        ("tandem.p=0.3", "Invalid fields {'tandem'}"),
    ],
)
def test_misspelt_setting_of_skyrl_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, argument: str, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["tandem_skyrl", "--tandem.schedule", "word", argument])
    with pytest.raises(ValueError, match=re.escape(said)):
        main()


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--tandem.schedul=word", r"Did you mean 'schedule'\?"),
        ("--tandem.shedule=word", r"Did you mean 'schedule'\?"),
        ("--tandem.lambda-jun=0.1", r"Did you mean 'lambda_jun'\?"),
        ("--tandm.p=0.3", r"--tandem\.p"),
        ("--tandem-p=0.3", r"--tandem\.p"),
    ],
)
def test_misspelt_setting_of_tandem_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, argument: str, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["tandem_skyrl", argument])
    with pytest.raises(SystemExit, match=said):
        main()


def test_swapped_backend_is_a_run_that_skyrl_and_tandem_accept(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "examples" / "swap_backends" / "train.py"
    arguments = ["--backend", "skyrl", "--data", str(tmp_path), "--dry-run"]
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=True
    )
    own, others, _ = settings_of_command(shlex.split(done.stdout)[3:], "plain")
    cfg = SkyRLTrainConfig.from_cli_overrides(others)
    check_run(cfg, own)
    validate_cfg(cfg)
    assert (own.make_schedule().name, cfg.environment.env_class) == ("word", "tandem_math")


@pytest.mark.parametrize("method", ["tandem", "grpo", "kl-reg", "grpo-g16", "grpo-half"])
def test_the_papers_recipe_has_the_hyperparameters_of_its_appendix(
    method: str, tmp_path: Path
) -> None:
    """As SkyRL reads its settings: 128 responses of 16 problems are trained on in two updates."""
    kept = command_of(made_run("skyrl", tmp_path, method=method))
    settings, others = split_arguments(kept[2:])
    schedule = {"tandem": "word", "grpo-half": "solo-word"}.get(method)
    assert kept[1] == ("tandem_skyrl" if schedule else "tandem_skyrl.environment")
    cfg = SkyRLTrainConfig.from_cli_overrides(others)
    validate_cfg(cfg)
    if schedule:
        own = TandemConfig.from_mapping({k: v for k, v in settings.items() if k != "rollouts"})
        check_run(cfg, own)
        assert (own.schedule, own.parameters) == (schedule, {"p": 0.5, "cap": 32})
    stated = {
        "trainer.policy.model.path": "Qwen/Qwen3-4B-Instruct-2507",
        "trainer.policy.optimizer_config.lr": 1e-6,
        "trainer.algorithm.eps_clip_low": 0.2,
        "trainer.algorithm.eps_clip_high": 0.2,
        "trainer.algorithm.use_kl_loss": method == "kl-reg",
        "trainer.algorithm.kl_loss_coef": 0.001,
        "trainer.algorithm.temperature": 0.6,
        "trainer.train_batch_size": 16,
        "trainer.policy_mini_batch_size": 8,
        "trainer.max_training_steps": 250,
        "generator.n_samples_per_prompt": 16 if method == "grpo-g16" else 8,
        "generator.sampling_params.max_generate_length": 3000,
        "generator.sampling_params.temperature": 0.6,
        "generator.eval_n_samples_per_prompt": 4,
        "generator.eval_sampling_params.temperature": 0.6,
        "generator.eval_sampling_params.top_p": 0.95,
    }
    assert {name: option_of(cfg)(name) for name in stated} == stated


@dataclass
class OwnAlgorithm(AlgorithmConfig):
    overlong_buffer_len: int = 0


OwnConfig = make_config(algorithm_cls=OwnAlgorithm)


class OwnExperiment(TandemExp):
    """An experiment of a user's."""


def test_experiment_has_the_settings_of_its_own_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SkyRL's DAPO example, which adds settings below ``trainer.algorithm``."""
    started: list[tuple[type, Any]] = []
    monkeypatch.setattr(experiment, "run_experiment", lambda *given: started.append(given))
    arguments = ["--tandem.schedule", "word", "trainer.algorithm.overlong_buffer_len=7"]
    monkeypatch.setattr(sys, "argv", ["mine", *arguments])
    main(OwnExperiment, config=OwnConfig)
    ((kind, cfg),) = started
    assert kind is OwnExperiment
    assert cfg.trainer.algorithm.overlong_buffer_len == 7
    assert settings_of(cfg).make_schedule().name == "word"
    monkeypatch.setattr(sys, "argv", ["mine", *arguments[:2], "trainer.algorithm.overlong_bufer=7"])
    with pytest.raises(ValueError, match="overlong_bufer"):
        main(OwnExperiment, config=OwnConfig)
    monkeypatch.setattr(sys, "argv", ["mine", *arguments])
    with pytest.raises(ValueError, match="overlong_buffer_len"):
        main(OwnExperiment)
