"""What a recipe says to each trainer, and what it reads of what the trainer leaves."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from made_runs import PAPER, TRAINERS, command_of, made_run
from refused import refused

from tandem_plugin.errors import ConfigError
from tandem_plugin.grading.rewards.own import VARIABLE, OwnRewards
from tandem_plugin.lab.protocols import template_arguments
from tandem_plugin.lab.recipes import trl
from tandem_plugin.lab.recipes.run import Command, hydra_text, shell_lines, trainer_of
from tandem_plugin.lab.recipes.settings import read_recipe
from tandem_plugin.lab.recipes.summary import next_commands, script
from tandem_plugin.patching import versions

ROOT = Path(__file__).parents[3]
METHODS = ("tandem", "grpo", "kl-reg", "grpo-g16", "grpo-half")
MANAGER = "agent_loop_manager_class=tandem_verl.rollouts.TandemAgentLoopManager"


def values(command: list[str], trainer: str) -> dict[str, str]:
    """The trainer's settings by name, without a mark of Hydra's."""
    named = {}
    for part, following in zip(command, [*command[1:], ""], strict=True):
        if part.startswith("--"):
            named[part[2:]] = following
        elif "=" in part and trainer in ("verl", "skyrl"):
            name, _, value = part.lstrip("+").partition("=")
            named[name] = value
    return named


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("protocol", "cap", "validation", "samples", "steps"),
    [("paper", "32", "team", "4", 250), ("release", "31", "senior", "1", 4912)],
)
def test_protocol_is_followed(
    trainer: str, protocol: str, cap: str, validation: str, samples: str, steps: int, tmp_path: Path
) -> None:
    said = values(command_of(made_run(trainer, tmp_path, protocol=protocol)), trainer)
    prefix = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config." * (trainer == "verl")
    assert (said[f"{prefix}tandem.schedule"], said[f"{prefix}tandem.cap"]) == ("word", cap)
    if trainer != "trl":  # which does not validate here
        assert said[f"{prefix}tandem.validation"] == validation
        validated = {
            "verl": "actor_rollout_ref.rollout.val_kwargs.n",
            "openrlhf": "eval.n_samples_per_prompt",
            "skyrl": "generator.eval_n_samples_per_prompt",
        }[trainer]
        assert said[validated] == samples
    counted = {
        "verl": ("trainer.total_training_steps", steps),
        "skyrl": ("trainer.max_training_steps", steps),
        "trl": ("max_steps", 2 * steps),
    }
    if trainer in counted:
        name, count = counted[trainer]
        assert said[name] == str(count)


STATED = {
    "verl": {
        "learning": "actor_rollout_ref.actor.optim.lr",
        "clip": "actor_rollout_ref.actor.clip_ratio",
        "group": "actor_rollout_ref.rollout.n",
        "response": "data.max_response_length",
        "temperature": "actor_rollout_ref.rollout.temperature",
    },
    "openrlhf": {
        "learning": "actor.adam.lr",
        "clip": "actor.eps_clip",
        "group": "rollout.n_samples_per_prompt",
        "response": "rollout.max_new_tokens",
        "temperature": "rollout.temperature",
    },
    "trl": {
        "learning": "learning_rate",
        "clip": "epsilon",
        "group": "num_generations",
        "response": "max_completion_length",
        "temperature": "temperature",
    },
    "skyrl": {
        "learning": "trainer.policy.optimizer_config.lr",
        "clip": "trainer.algorithm.eps_clip_low",
        "group": "generator.n_samples_per_prompt",
        "response": "generator.sampling_params.max_generate_length",
        "temperature": "generator.sampling_params.temperature",
    },
}
"""By what each trainer calls the paper's hyperparameters."""


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("method", METHODS)
def test_method_has_the_papers_hyperparameters(trainer: str, method: str, tmp_path: Path) -> None:
    command = command_of(made_run(trainer, tmp_path, method=method))
    said = values(command, trainer)
    names = STATED[trainer]
    assert float(said[names["learning"]]) == 1e-6
    assert float(said[names["clip"]]) == 0.2
    assert said[names["group"]] == ("16" if method == "grpo-g16" else "8")
    assert (said[names["response"]], said[names["temperature"]]) == ("3000", "0.6")
    text = "\n".join(command)
    assert ("solo-word" in text) is (method == "grpo-half")
    assert ("tandem.rollouts" in text) is (method == "tandem" and trainer != "verl")
    assert (MANAGER in text) is (method in ("tandem", "grpo-half") and trainer == "verl")
    modules = ("tandem_trl.grpo", "tandem_openrlhf.train_ppo_ray", "tandem_skyrl")
    if trainer != "verl":
        assert bool(set(modules) & set(command)) is (method in ("tandem", "grpo-half"))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_coefficient_of_kl_reg_is_the_recipes(trainer: str, tmp_path: Path) -> None:
    name = {
        "verl": "actor_rollout_ref.actor.kl_loss_coef",
        "openrlhf": "algo.kl.init_coef",
        "trl": "beta",
        "skyrl": "trainer.algorithm.kl_loss_coef",
    }[trainer]
    said = values(command_of(made_run(trainer, tmp_path, method="kl-reg", kl=0.2)), trainer)
    assert said[name] == "0.2"
    plain = values(command_of(made_run(trainer, tmp_path, method="grpo", kl=0.2)), trainer)
    assert float(plain.get(name, 0)) == 0


@pytest.mark.parametrize("trainer", TRAINERS)
def test_null_leaves_a_setting_to_the_trainer(trainer: str, tmp_path: Path) -> None:
    run = made_run(trainer, tmp_path, temperature=None, learning_rate=None)
    said = values(command_of(run), trainer)
    names = STATED[trainer]
    assert names["temperature"] not in said
    assert names["learning"] not in said
    assert "None" not in said.values()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_junior_and_settings_of_tandem_reach_the_trainer(trainer: str, tmp_path: Path) -> None:
    tandem = {"schedule": "word", "p": 0.25, "mode": "speculative", "drafts": {1: 8, 16: 4}}
    run = made_run(trainer, tmp_path, junior="a/b", tandem=tandem)
    said = values(command_of(run), trainer)
    found = {name.rpartition("tandem.")[2]: value for name, value in said.items()}
    assert (found["junior"], found["p"], found["mode"]) == ("a/b", "0.25", "speculative")
    drafts = found["drafts"]
    assert drafts == ("{1:8,16:4}" if trainer == "verl" else '{"1": 8, "16": 4}')


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("weights", [None, [1, 0.25]])
def test_rewards_of_ones_own_reach_the_trainer_with_their_weights(
    trainer: str, weights: list[float] | None, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def a(response, problem): ...\n\n\ndef b(response, problem): ...\n")
    run = made_run(trainer, tmp_path, reward=["mine.py:a", "./mine.py:b"], reward_weights=weights)
    command, said = trainer_of(trainer).command(run), values(command_of(run), trainer)
    if trainer == "verl":
        text = said["reward.custom_reward_function.reward_kwargs.reward"].strip("'")
        assert said["reward.custom_reward_function.path"].endswith("own_verl.py")
    else:
        text = command.variables[VARIABLE]
        assert "reward.remote_url" not in said or "own_openrlhf.py" in said["reward.remote_url"]
    rewards = OwnRewards.of(text)
    assert [str(reward) for reward in rewards.rewards] == [f"{file}:a", f"{file}:b"]
    assert rewards.weights == tuple(weights or (1, 1))
    if trainer == "trl":
        line = " ".join(command_of(run))
        assert "own_trl.reward_0 tandem_plugin.grading.rewards.own_trl.reward_1" in line
        assert ("--reward_weights 1 0.25" in line) is (weights is not None)
    with refused("recipe-rewards-same-name", function="a"):
        made_run(trainer, tmp_path, reward=["mine.py:a", "../" + tmp_path.name + "/mine.py:a"])
    with refused("recipe-reward-form", reward="math"):
        made_run(trainer, tmp_path, reward=["math", "mine.py:a"])


@pytest.mark.parametrize(
    ("trainer", "argument", "setting"),
    [
        ("trl", "--learning-rate=1", "learning_rate"),
        ("trl", "--learning_ra=1", "learning_rate"),
        ("openrlhf", "--actor.adam.l", "learning_rate"),
        ("openrlhf", "--rollout.max-new-tokens", "max_response"),
        ("verl", "trainer={total_training_steps: 9}", "device"),  # the first of those in it
        ("verl", "actor_rollout_ref.actor.optim={lr: 1}", "learning_rate"),
        ("verl", "actor_rollout_ref.rollout.engine_kwargs={}", "tandem"),
        ("verl", "~trainer.total_training_steps", "steps"),  # Hydra's deletion
        ("skyrl", "trainer[policy][optimizer_config][lr]=1", "learning_rate"),
        ("skyrl", "generator.sampling_params={temperature: 1}", "max_response"),
    ],
)
def test_other_spellings_of_a_setting_name_both(
    trainer: str, argument: str, setting: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        made_run(trainer, tmp_path, argument, "1")
    assert caught.value.code == "recipe-argument-contradicts"
    assert caught.value.fields["setting"] == setting


@pytest.mark.parametrize(
    ("trainer", "argument"),
    [
        ("trl", "--config"),
        ("trl", "--config=a.yaml"),
        ("verl", "--config-name=a"),
        ("verl", "--config-path"),
    ],
)
def test_file_of_the_trainers_own_settings_is_rejected(
    trainer: str, argument: str, tmp_path: Path
) -> None:
    with refused("recipe-argument-file", argument=argument):
        made_run(trainer, tmp_path, argument, "a.yaml")


@pytest.mark.parametrize(
    ("trainer", "arguments"),
    [
        ("trl", ["--learning_rate_scheduler", "x", "--lr_scheduler_type", "cosine"]),
        ("trl", ["--reward_weights_file", "-1"]),
        ("verl", ["trainer.logger=['console']", "actor_rollout_ref.rollout.nnodes=2"]),
        ("openrlhf", ["--actor.num_nodes", "2", "--train.seed", "3"]),
        ("skyrl", ["trainer.policy.optimizer_config.weight_decay=0.1"]),
    ],
)
def test_settings_of_like_names_pass(trainer: str, arguments: list[str], tmp_path: Path) -> None:
    assert made_run(trainer, tmp_path, *arguments).arguments == tuple(arguments)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_argument_that_says_what_the_recipe_says_names_both(trainer: str, tmp_path: Path) -> None:
    says = trainer_of(trainer).SAYS
    for name, setting in says.items():
        forms = [[f"--{name}", "1"], [f"--{name}=1"]]
        if trainer in ("verl", "skyrl"):
            forms = [[f"{name}=1"], [f"+{name}=1"], [f"++{name}.inner=1"]]
        for arguments in forms:
            with pytest.raises(ConfigError) as caught:
                made_run(trainer, tmp_path, *arguments)
            assert caught.value.code == "recipe-argument-contradicts"
            assert caught.value.fields["setting"] == setting
            assert name in str(caught.value)
    run = made_run(trainer, tmp_path, "an.argument=1", arguments=["other.argument=2"])
    assert command_of(run)[-2:] == ["other.argument=2", "an.argument=1"]


@pytest.mark.parametrize("trainer", ["verl", "openrlhf", "skyrl"])
def test_arguments_for_several_nodes_are_those_of_the_page(trainer: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    names = {"verl": "verl", "openrlhf": "OpenRLHF", "skyrl": "SkyRL"}
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {names[trainer]} | `")]
    arguments = shlex.split(row.split("`")[1])
    command = command_of(made_run(trainer, tmp_path, *arguments, gpus=8))
    assert command[-len(arguments) :] == arguments


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_setting_that_is_guarded_is_one(trainer: str, tmp_path: Path) -> None:
    """What SAYS names is in a command of some method, so that a guard cannot be misspelt."""
    runs = [
        made_run(trainer, tmp_path, method=method, device=device)
        for method in METHODS
        for device in ("gpu", "cpu")
    ]
    names = {name for run in runs for name in values(command_of(run), trainer)}
    names |= {"reward_weights"}  # of several rewards
    for said in trainer_of(trainer).SAYS:
        assert any(name == said or name.startswith(f"{said}.") for name in names), said


@pytest.mark.parametrize("trainer", TRAINERS)
def test_protocol_that_cannot_be_followed_stops(trainer: str, tmp_path: Path) -> None:
    with refused("protocol-junior-loss-weight"):
        made_run(trainer, tmp_path, "x.lambda_jun=0.1", protocol="release")


@pytest.mark.parametrize(("gpus", "is_offloaded"), [(1, True), (2, False)])
def test_optimizer_of_one_gpu_waits_in_host_memory(
    gpus: int, is_offloaded: bool, tmp_path: Path
) -> None:
    said = values(command_of(made_run("verl", tmp_path, gpus=gpus)), "verl")
    assert said["actor_rollout_ref.actor.fsdp_config.optimizer_offload"] == str(is_offloaded)
    assert said["trainer.n_gpus_per_node"] == str(gpus)
    assert ("--ds.adam_offload" in command_of(made_run("openrlhf", tmp_path, gpus=gpus))) is (
        is_offloaded
    )


@pytest.mark.parametrize("trainer", TRAINERS)
def test_cpu_needs_no_gpu_and_no_setting_besides(trainer: str, tmp_path: Path) -> None:
    run = made_run(trainer, tmp_path, device="cpu")
    command, said = trainer_of(trainer).command(run), values(command_of(run), trainer)
    expected = {
        "verl": {"trainer.device": "cpu", "trainer.n_gpus_per_node": "1"},
        "openrlhf": {"vllm.sync_backend": "gloo", "actor.num_gpus_per_node": "1"},
        "trl": {"use_cpu": "True", "bf16": "False", "dtype": "float32"},
        "skyrl": {"trainer.placement.colocate_all": "False", "trainer.bf16": "False"},
    }[trainer]
    assert {name: said[name] for name in expected} == expected
    assert command.variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
    if trainer in ("openrlhf", "skyrl"):
        folders = command.environment({"PYTHONPATH": "mine"})["PYTHONPATH"].split(":")
        assert (Path(folders[0]) / "sitecustomize.py").exists()
        assert folders[-1] == "mine"
    grpo = trainer_of(trainer).command(made_run(trainer, tmp_path, device="cpu", method="grpo"))
    # A tandem engine keeps the weights that vLLM's CPU build would pack; a plain one is made to.
    assert ("TANDEM_ON_CPU" in grpo.variables) is (trainer != "verl")
    plain = trainer_of(trainer).command(made_run(trainer, tmp_path))
    assert "TANDEM_ON_CPU" not in plain.variables
    assert plain.arguments != command.arguments


@pytest.mark.parametrize("trainer", ["verl", "openrlhf", "skyrl"])
@pytest.mark.parametrize(
    ("address", "joins"), [(None, False), ("", False), ("local", False), ("first:6379", True)]
)
def test_run_on_cpus_joins_the_cluster_that_is_named(
    trainer: str, address: str | None, joins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    command = trainer_of(trainer).command(made_run(trainer, tmp_path, device="cpu"))
    environment = command.environment({"RAY_ADDRESS": address or ""})
    # A cluster's nodes have said what they have: Ray rejects who says it again.
    text = " ".join(command.arguments)
    says_resources = "ray_init" in text or "RAY_OVERRIDE_RESOURCES" in environment
    assert says_resources is not joins
    if joins:
        assert environment["RAY_ADDRESS"] == "first:6379"
    elif trainer == "verl":
        assert "+ray_kwargs.ray_init.address=local" in text
    else:
        assert environment["RAY_ADDRESS"] == "local"


@pytest.mark.parametrize(("has", "attention"), [(True, False), (False, True)])
def test_missing_flash_attn_is_made_up_for(
    has: bool, attention: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("verl", "openrlhf", "skyrl", "run"):
        monkeypatch.setattr(
            f"tandem_plugin.lab.recipes.{name}.installed_version", lambda _: "2" if has else None
        )
    assert ("sdpa" in " ".join(command_of(made_run("verl", tmp_path)))) is attention
    assert ("sdpa" in command_of(made_run("openrlhf", tmp_path))) is attention
    for trainer in ("openrlhf", "skyrl"):
        command = trainer_of(trainer).command(made_run(trainer, tmp_path))
        assert ("PYTHONPATH" in command.variables) is attention


def test_trl_resumes_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "a run [1e-5]" / "checkpoints"
    for name in (
        "checkpoint-20/trainer_state.json",
        "checkpoint-100/trainer_state.json",
        "checkpoint-120/model.safetensors",
        "checkpoint-x/trainer_state.json",
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    assert trl.newest_checkpoint(folder) == folder / "checkpoint-100"
    said = values(command_of(made_run("trl", tmp_path, out="a run [1e-5]")), "trl")
    assert said["resume_from_checkpoint"] == str(folder / "checkpoint-100")
    fresh = values(command_of(made_run("trl", tmp_path, out="other")), "trl")
    assert "resume_from_checkpoint" not in fresh


def test_trl_needs_deepspeed_for_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl, "installed_version", lambda _: None)
    with refused("recipe-deepspeed-missing", gpus=2):
        trl.before(made_run("trl", tmp_path))
    trl.before(made_run("trl", tmp_path, gpus=1))


def test_trl_reads_a_file_of_any_name_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_text("rows")
    run = made_run("trl", tmp_path, gpus=1)
    own = type(run)(**{**{name: getattr(run, name) for name in run.__slots__},
                       "train": tmp_path / "mine.parquet"})  # fmt: skip
    trl.before(own)
    folder = Path(values(command_of(own), "trl")["dataset_name"])
    assert (folder / "train.parquet").read_text() == "rows"


@pytest.mark.parametrize("name", ["run", "lr[1e-5]", "a b", "*", "(x)"])
def test_openrlhfs_best_senior_is_kept_by_its_exact_name(name: str, tmp_path: Path) -> None:
    run = made_run("openrlhf", tmp_path, out=name)
    for place in ("best_global_step4_hf", "best_global_step10_hf", "global_step25_hf",
                  "best_global_step10_hf_of_mine", "_actor"):  # fmt: skip
        (run.out / "checkpoints" / place).mkdir(parents=True)
    best = trainer_of("openrlhf").senior(run)
    assert best == run.out / "checkpoints" / "best_global_step10_hf"
    left = {place.name for place in (run.out / "checkpoints").iterdir()}
    assert left == {"best_global_step10_hf", "best_global_step10_hf_of_mine", "_actor"}


def test_openrlhf_without_evaluations_has_its_last_senior(tmp_path: Path) -> None:
    run = made_run("openrlhf", tmp_path)
    (run.out / "checkpoints" / "global_step25_hf").mkdir(parents=True)
    with refused("run-without-seniors"):
        trainer_of("openrlhf").senior(run)
    assert (run.out / "checkpoints" / "global_step25_hf").exists()  # nothing better is there
    (run.out / "last").mkdir()
    assert trainer_of("openrlhf").senior(run) == run.out / "last"


@pytest.mark.parametrize(("scores", "chosen"), [((0.5, 0.75, 0.75, 0.25), 100), ((None,) * 4, 120)])
def test_skyrls_senior_is_the_last_of_the_best(
    scores: tuple[float | None, ...], chosen: int, tmp_path: Path
) -> None:
    run = made_run("skyrl", tmp_path, out="run of one")
    export = run.out / "export"
    for step, score in zip((20, 80, 100, 120), scores, strict=True):
        (export / f"global_step_{step}" / "policy").mkdir(parents=True)
        if score is not None:
            folder = export / "dumped_evals" / f"global_step_{step}_evals"
            folder.mkdir(parents=True)
            found = {"eval/set/avg_score": 1.0, "eval/all/avg_score": score, "eval/all/n": 3}
            (folder / "aggregated_results.jsonl").write_text(json.dumps(found) + "\n")
    assert trainer_of("skyrl").senior(run) == export / f"global_step_{chosen}" / "policy"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_run_that_left_no_senior_is_an_error(trainer: str, tmp_path: Path) -> None:
    run = made_run(trainer, tmp_path)
    (run.out / "checkpoints").mkdir(parents=True)
    with refused("run-without-seniors"):
        trainer_of(trainer).senior(run)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_example_is_what_print_writes(
    trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("verl", "openrlhf", "skyrl", "run", "trl"):
        monkeypatch.setattr(
            f"tandem_plugin.lab.recipes.{name}.installed_version", lambda _: None, raising=False
        )
    example = ROOT / "examples" / trainer / "command.sh"
    recipe = read_recipe(example.with_name("recipe.yaml"))[0]
    assert recipe.trainer == trainer
    from tandem_plugin.lab.recipes.data import data_of
    from tandem_plugin.lab.recipes.run import resolved

    data = data_of(recipe, tmp_path)
    run = resolved(recipe, tmp_path, [], data.train, data.validation)
    text = script(run, tmp_path, ["tandem", "train", "recipe.yaml", "--prepare"])
    assert text.startswith(f"cd {shlex.quote(str(tmp_path))}\n")
    assert example.read_text().splitlines()[1:] == text.splitlines()[1:]


def test_printed_words_are_the_commands(tmp_path: Path) -> None:
    """As a shell reads them, with the folder as it stands in the first line."""
    import os
    import subprocess

    folder = tmp_path / "it's a [folder]"
    folder.mkdir()
    run = made_run("verl", folder, "an.argument='a b'", out="lr=1 $HOME")
    text = script(run, folder, ["true"])
    shown = text.replace("python -m", "printf '%s\\n' -m", 1)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "tandem").write_text("#!/bin/sh\necho REWARD\n")
    (bin_ / "tandem").chmod(0o755)
    path = f"{bin_}:{os.environ['PATH']}"
    said = subprocess.run(
        ["bash", "-c", shown], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    expected = [
        part if "custom_reward_function.path" not in part else f"{part.partition('=')[0]}=REWARD"
        for part in command_of(run)
    ]
    assert said.stdout.splitlines() == expected


@pytest.mark.parametrize("trainer", TRAINERS)
def test_printed_command_has_a_line_for_each_setting(trainer: str, tmp_path: Path) -> None:
    text = script(made_run(trainer, tmp_path, device="cpu"), tmp_path, ["true"])
    lines = text.splitlines()[2:]
    assert max(line.count("=") for line in lines) <= 3
    assert len(lines) > 25
    assert not [line for line in lines if " --" in line.strip()]


def test_empty_words_and_variables_are_printed() -> None:
    command = Command(("prog", "--flag", "", "--x", "a b"), {"NAME": "some value"})
    assert shlex.split(shell_lines(command, {}).replace("\\\n", " ")) == [
        "NAME=some value", "prog", "--flag", "", "--x", "a b"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["plain/path-1.2", "a b", "it's", "lr=1e-5", "[x]", "back\\'s", "ü"]
)
def test_texts_survive_hydras_grammar(text: str) -> None:
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    override = parser.OverridesParser.create().parse_override(f"x={hydra_text(text)}")
    assert override.value() == text


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("method", ["tandem", "grpo"])
def test_next_commands_evaluate_a_test_set_with_the_template_of_the_training(
    trainer: str, method: str, tmp_path: Path
) -> None:
    given = {
        "verl": ["data.apply_chat_template_kwargs={enable_thinking:false}"],
        "openrlhf": ["--data.tokenizer_chat_template", "{{ messages }}"],
        "skyrl": ["generator.chat_template_kwargs={enable_thinking:false}"],
    }.get(trainer, [])
    if given and trainer != "openrlhf":
        pytest.importorskip("hydra")
    run = made_run(trainer, tmp_path, *given, method=method)
    commands = [shlex.split(command) for command in next_commands(run, tmp_path)]
    assert [command[1] for command in commands] == [
        *(["view"] if method == "tandem" else []), "eval", "report"
    ]  # fmt: skip
    evaluation = commands[-2]
    assert "GSM8K=gsm8k-test" in evaluation
    assert not any("heldout" in word for word in evaluation)
    assert f"{method}={run.out / 'senior'}" in evaluation
    expected = {"openrlhf": 'chat_template="{{ messages }}"', "trl": ""}.get(
        trainer, "enable_thinking=false"
    )
    assert not expected or evaluation[evaluation.index("--template-arg") + 1] == expected


def test_benchmark_of_a_file_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for file in (tmp_path / "here.jsonl", tmp_path / "home" / "there.jsonl"):
        file.touch()
    benchmarks = {"A": "here.jsonl", "B": "~/there.jsonl", "C": "math500"}
    run = made_run("verl", tmp_path, benchmarks=benchmarks)
    words = shlex.split(next_commands(run, tmp_path)[-2])
    assert [words[at + 1] for at, word in enumerate(words) if word == "--benchmark"] == [
        f"A={tmp_path / 'here.jsonl'}", f"B={tmp_path / 'home' / 'there.jsonl'}", "C=math500"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["trainer.test_freq=2", "--rollout.temperature", "0.6"], {}),
        (["++data.apply_chat_template_kwargs={a: 1, b: 'x y'}"], {"a": 1, "b": "x y"}),
        (
            [
                "data.apply_chat_template_kwargs={a:1,b:false}",
                "+data.apply_chat_template_kwargs.b=true",
                'data.apply_chat_template_kwargs.c="false"',
            ],
            {"a": 1, "b": True, "c": "false"},
        ),
        (["actor_rollout_ref.model.custom_chat_template='{{ x }}'"], {"chat_template": "{{ x }}"}),
        (
            [
                "generator.chat_template_kwargs={a: 1}",
                "generator.chat_template_kwargs.b=false",
                "generator.max_turns=2",
            ],
            {"a": 1, "b": False},
        ),
        (["--data.apply_chat_template", "--vllm.enforce_eager"], {}),
        (["--data.tokenizer_chat_template={{ x }}"], {"chat_template": "{{ x }}"}),
        (["--data.tokenizer_chat_template", "{{ x }}"], {"chat_template": "{{ x }}"}),
    ],
)
def test_chat_templates_arguments_are_found_in_the_trainers(
    arguments: list[str], expected: dict[str, Any]
) -> None:
    pytest.importorskip("hydra")
    assert template_arguments(arguments) == expected


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/verl.md",
        "examples/tandem-plugin-curriculum/README.md",
        "examples/tandem-plugin-handoffs/README.md",
    ],
)
def test_page_that_enables_tandem_in_verl_names_the_manager(page: str) -> None:
    assert MANAGER in (ROOT / page).read_text(encoding="utf-8")


def test_papers_run_differs_in_nothing(tmp_path: Path) -> None:
    from tandem_plugin.lab.recipes.summary import differences

    assert differences(made_run("verl", tmp_path)) == []
    changed = made_run("verl", tmp_path, max_response=512, tandem={"schedule": "word", "p": 0.3})
    assert differences(changed) == ["max_response 512 (3000)", "tandem.p 0.3 (0.5)"]
    team = {"p": 0.5, "alone": 0.25, "lambda_jun": 0.1, "validation": "senior", "seed": 7}
    (tmp_path / "mine.py").write_text("def score(response, problem): ...\n")
    run = made_run("verl", tmp_path, tandem=team, junior="a/b", reward="mine.py:score")
    assert differences(run) == [
        "junior a/b (null)",
        "reward mine.py:score (math)",
        "tandem.alone 0.25 (0)",
        "tandem.validation senior (team)",
        "tandem.lambda_jun 0.1 (0)",
    ]
    assert differences(made_run("verl", tmp_path, method="grpo")) == []
    assert differences(made_run("verl", tmp_path, method="grpo-g16")) == ["method grpo-g16"]
    release = made_run("verl", tmp_path, protocol="release")
    assert differences(release) == ["tandem.cap 31 (32)", "tandem.validation senior (team)"]
    assert PAPER["problems"] == "deepscaler"
    assert versions.installed_version("no-such-package") is None
