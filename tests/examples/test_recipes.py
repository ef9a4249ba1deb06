"""What the recipes say to their trainers, write beside a run, and refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fake_trainers import EXAMPLES, fake_environment, run_recipe

from tandem_plugin.lab.protocols import template_arguments

TRAINERS = ("verl", "openrlhf", "trl", "skyrl")


@pytest.mark.parametrize(
    ("framework", "given", "repeated"),
    [
        ("verl", [], ""),
        (
            "verl",
            ["data.apply_chat_template_kwargs={enable_thinking:false}", "trainer.test_freq=2"],
            "--template-arg enable_thinking=false",
        ),
        ("openrlhf", [], ""),
        (
            "openrlhf",
            ["--data.tokenizer_chat_template", "{{ messages }}"],
            r"--template-arg chat_template=\"\{\{\ messages\ \}\}\"",
        ),
        ("trl", [], ""),
        (
            "skyrl",
            ["generator.chat_template_kwargs={enable_thinking:false}"],
            "--template-arg enable_thinking=false",
        ),
    ],
)
def test_a_finished_run_prints_its_next_commands_again(
    framework: str, given: list[str], repeated: str, tmp_path: Path
) -> None:
    """With the arguments of the chat template that it was trained with."""
    if framework in ("verl", "skyrl") and given:
        pytest.importorskip("hydra")
    out = tmp_path / "runs" / framework / "tandem"
    out.mkdir(parents=True)
    (out / "done").write_text("250\n")
    for name in ("data/train.parquet", "openrlhf-data/train.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    sets = {"BENCHMARKS": "GSM8K=gsm8k-test"}
    # The environment's own Python, as in an activated one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(EXAMPLES / framework / "train.sh"), "tandem", *given],
        cwd=tmp_path,
        env=os.environ | {"MODEL": "a model", "EVAL": "--n 8", "PATH": path, **sets},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"runs/{framework}/tandem has all of its 250 steps" in done.stdout
    view, evaluate, report = [line.strip() for line in done.stdout.splitlines()[-3:]]
    assert view.startswith(f"tandem view runs/{framework}/tandem/rollouts --tokenizer a\\ model")
    assert evaluate.endswith("--n 8")
    # Of a test set, not of the problems that chose the checkpoint.
    assert "--benchmark GSM8K=gsm8k-test --out" in evaluate
    assert "heldout" not in evaluate
    assert evaluate.removesuffix("--n 8").rstrip().endswith(repeated or "/results")
    assert report.startswith(f"tandem report runs/{framework}/tandem/results")


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


@pytest.fixture
def fake_python(tmp_path: Path) -> dict[str, str]:
    return fake_environment(tmp_path)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("protocol", "cap", "validation", "samples", "steps"),
    [("paper", "32", "team", "4", "250"), ("release", "31", "senior", "1", "4912")],
)
def test_recipe_trains_by_the_protocol_and_records_it(
    fake_python: dict[str, str], tmp_path: Path, trainer: str, protocol: str, cap: str,
    validation: str, samples: str, steps: str,
) -> None:  # fmt: skip
    done = run_recipe(trainer, fake_python, "tandem", "--protocol", protocol, "an.argument=1")
    assert done.returncode == 9, done.stderr  # as the trainer's
    follow = next(line for line in done.stdout.splitlines() if "tandem view" in line)
    assert "/rollouts --tokenizer" in follow
    assert follow.rstrip().endswith("rollouts.html --follow")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert "an.argument=1" in arguments
    assert "--protocol" not in arguments
    text = "\n".join(arguments)
    named = "\n".join if trainer == "openrlhf" else "=".join
    assert named(("tandem.cap", cap)) in text
    if trainer != "trl":  # which does not validate here
        assert named(("tandem.validation", validation)) in text
        validated = {
            "verl": "val_kwargs.n",
            "openrlhf": "eval.n_samples_per_prompt",
            "skyrl": "eval_n_samples_per_prompt",
        }[trainer]
        assert named((validated, samples)) in text
    if trainer == "verl":
        assert f"total_training_steps={steps}" in text
    if trainer == "skyrl":
        assert f"trainer.max_training_steps={steps}" in text
    if trainer == "trl":  # counts updates
        assert f"--max_steps\n{2 * int(steps)}" in text
    noted = (tmp_path / "run" / "protocol").read_text()
    assert f"protocol={protocol}\n" in noted
    assert noted.endswith(f"arguments=an.argument=1\nsteps={steps}\n")
    assert "an.argument=1" in (tmp_path / "run" / "command").read_text().splitlines()[-1]
    assert (tmp_path / "run" / "packages").read_text().endswith("\na==1\n")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_recipe_refuses_the_folder_of_another_run_and_names_the_difference(
    fake_python: dict[str, str], tmp_path: Path, trainer: str
) -> None:
    note = tmp_path / "run" / "protocol"
    data = tmp_path / "problems"
    data.write_text("one")

    def run(
        *given: str, method: str = "tandem", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = fake_python | {"TRAIN": str(data), "MODEL": "A/B"} | variables
        return run_recipe(trainer, environment, method, *given)

    assert run("lr=1").returncode == 9  # as the trainer's
    (tmp_path / "run" / "done").write_text("250\n")  # a finished run is told apart, too
    noted, changed = note.read_text(), tmp_path / "changed"
    changed.write_text("two")
    differences: list[tuple[list[str], dict[str, str], str]] = [
        (["lr=5"], {}, "> arguments=lr=5"),
        (["lr=1"], {"MODEL": "A/C"}, "> model=A/C"),
        (["lr=1"], {"TRAIN": str(changed)}, f"> train={changed} (checksum "),
        (["lr=1"], {"method": "grpo"}, "> method=grpo"),
        (["lr=1"], {"RESPONSE": "9"}, "> response=9"),
        (["lr=1"], {"TANDEM_CONFIG": "{}"}, "> TANDEM_CONFIG={}"),
        (["--protocol", "release", "lr=1"], {}, "> protocol=release"),
    ]
    # Recipes share what compares: verl's has every case, the others that they ask it.
    for arguments, variables, difference in differences[: None if trainer == "verl" else 1]:
        done = run(*arguments, **variables)
        assert done.returncode == 2
        assert difference in done.stderr
        assert "tandem eval" not in done.stdout
        assert note.read_text() == noted
    if trainer == "verl":
        data.write_text("other problems under the same name")
        assert "(checksum" in run("lr=1").stderr
        data.write_text("one")
    assert "has all of its 250 steps" in run("lr=1").stdout
    assert run("lr=1", STEPS="300").returncode == 9  # the same run, for longer
    assert note.read_text().endswith("steps=300\n")


OTHERS = [
    (trainer, shown, "1", [], {}, starts)
    for trainer in TRAINERS
    if trainer != "verl"
    for shown, starts in (("0", False), ("1", True))
]
"""Recipes share what counts GPUs: verl's has every case, the others that they ask it."""


@pytest.mark.parametrize(
    ("trainer", "shown", "gpus", "given", "environment", "starts"),
    [
        ("verl", "0", "1", [], {}, False),
        ("verl", "1", "2", [], {}, False),
        ("verl", "1", "1", [], {}, True),
        ("verl", "8", "2", [], {}, True),
        ("verl", "0", "1", [], {"RAY_ADDRESS": "auto"}, True),
        ("verl", "0", "1", [], {"RAY_TMPDIR": "started"}, True),
        ("verl", "0", "1", [], {"TRIAL": "1"}, True),
        ("trl", "0", "1", ["--use_cpu", "True"], {}, True),
        ("verl", "0", "1", ["trainer.device=cpu"], {}, True),
        ("verl", "1", "2", ["trainer.n_gpus_per_node=1"], {}, True),
        ("openrlhf", "1", "2", ["--actor.num_gpus_per_node", "1"], {}, True),
        *OTHERS,
    ],
)
def test_recipe_says_at_once_that_gpus_are_missing(
    fake_python: dict[str, str], tmp_path: Path, trainer: str, shown: str, gpus: str,
    given: list[str], environment: dict[str, str], starts: bool,
) -> None:  # fmt: skip
    """Ray would wait for them for ever; a trainer that starts here fails with 9."""
    script = tmp_path / "bin" / "python"
    script.write_text(script.read_text().replace("-c) exit 1", f"-c) echo {shown}; exit 0"))
    cluster = tmp_path / "started" / "ray" / "ray_current_cluster"  # as ``ray start`` writes it
    cluster.parent.mkdir(parents=True)
    cluster.touch()
    environment = {**fake_python, "GPUS": gpus, **environment}
    done = run_recipe(trainer, environment, "tandem", *given, cwd=tmp_path)
    assert done.returncode == (9 if starts else 2), done.stderr
    assert (tmp_path / "arguments").exists() is starts
    said = f"This machine shows {shown} GPUs, and the run needs {gpus} (GPUS={gpus})"
    assert (said in done.stderr) is not starts
    assert (tmp_path / "run" / "protocol").exists() is starts  # the folder is still any run's


@pytest.mark.skipif(find_spec("torch") is None, reason="torch, which counts GPUs, is not installed")
def test_recipe_on_this_machine_sees_no_gpu_that_is_hidden(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OUT": str(tmp_path), "GPUS": "1", "PATH": path}
    hidden |= {"RAY_TMPDIR": str(tmp_path), "TRAIN": __file__}
    done = subprocess.run(
        ["bash", str(EXAMPLES / "verl" / "train.sh"), "grpo"],
        env=os.environ | hidden, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "This machine shows 0 GPUs, and the run needs 1 (GPUS=1)" in done.stderr


MANAGER = "agent_loop_manager_class=tandem_verl.rollouts.TandemAgentLoopManager"


@pytest.mark.parametrize(
    ("method", "is_named"),
    [
        ("tandem", True),
        ("grpo-half", True),
        ("grpo", False),
        ("grpo-g16", False),
        ("kl-reg", False),
    ],
)
def test_recipe_names_the_manager_that_verl_cannot_import_without_the_plugin(
    fake_python: dict[str, str], tmp_path: Path, method: str, is_named: bool
) -> None:
    run_recipe("verl", fake_python, method)
    arguments = (tmp_path / "arguments").read_text()
    assert (f"+actor_rollout_ref.rollout.agent.{MANAGER}\n" in arguments) is is_named


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/verl.md", "examples/tandem-plugin-curriculum/README.md"],
)
def test_page_that_enables_tandem_in_verl_names_the_manager(page: str) -> None:
    assert MANAGER in (EXAMPLES.parent / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_recipe_stops_where_the_protocol_cannot_be_followed(
    fake_python: dict[str, str], tmp_path: Path, trainer: str
) -> None:
    for given, code in (
        (["release", "x.lambda_jun=0.1"], "protocol-junior-loss-weight"),
        (["mine"], "protocol-unknown"),
    ):
        done = run_recipe(trainer, fake_python, "tandem", "--protocol", *given)
        assert (done.returncode, code in done.stderr) == (2, True)
    assert not (tmp_path / "arguments").exists()


def test_recipe_of_trl_resumes_its_newest_whole_checkpoint(
    fake_python: dict[str, str], tmp_path: Path
) -> None:
    for name in ("checkpoint-20/trainer_state.json", "checkpoint-100/trainer_state.json",
                 "checkpoint-120/model.safetensors"):  # fmt: skip
        file = tmp_path / "run" / "checkpoints" / name
        file.parent.mkdir(parents=True)
        file.touch()
    run_recipe("trl", fake_python, "tandem")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    newest = str(tmp_path / "run" / "checkpoints" / "checkpoint-100")
    assert arguments[arguments.index("--resume_from_checkpoint") + 1] == newest


@pytest.mark.parametrize("trainer", TRAINERS)
def test_recipe_without_problems_says_which_command_writes_them(
    trainer: str, fake_python: dict[str, str], tmp_path: Path
) -> None:
    del fake_python["TRAIN"]
    done = run_recipe(trainer, fake_python, "tandem", cwd=tmp_path)
    assert done.returncode == 2
    folder = "openrlhf-data" if trainer == "openrlhf" else "data"
    assert f"There are no problems at {folder}/train." in done.stderr
    command = f"  tandem data prepare SOURCE --to {trainer} --out {folder} --heldout 200"
    assert done.stderr.splitlines()[-1].rstrip() == command
    assert not (tmp_path / "run").exists()


@pytest.fixture
def beside(fake_python: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The recipe beside its settings, as ``tandem init`` writes them, in ``tmp_path/recipe``."""
    (tmp_path / "recipe").mkdir()
    shutil.copy(EXAMPLES / "settings.sh", tmp_path / "recipe")
    for name in ("TRAIN", "OUT"):
        del fake_python[name]
    return fake_python


@pytest.mark.parametrize("trainer", TRAINERS)
def test_settings_beside_a_recipe_are_its_defaults(
    trainer: str, beside: dict[str, str], tmp_path: Path
) -> None:
    """The problems are prepared once, and the environment takes precedence."""
    shutil.copy(EXAMPLES / trainer / "train.sh", tmp_path / "recipe")
    settings = tmp_path / "recipe" / "settings.sh"
    settings.write_text(settings.read_text().replace("ARGUMENTS=()", "ARGUMENTS=(an.argument=1)"))

    def run(**variables: str) -> int:
        command = ["./train.sh", "tandem", "another.argument=2"]
        here = tmp_path / "recipe"
        done = subprocess.run(command, cwd=here, env=beside | variables, check=False)
        return done.returncode

    assert run() == 8  # as tandem data prepare
    prepared = (tmp_path / "prepared").read_text().split()
    assert prepared == f"data prepare gsm8k --to {trainer} --out data/gsm8k --heldout 200".split()
    ending = "jsonl" if trainer == "openrlhf" else "parquet"
    problems = tmp_path / "recipe" / "data" / "gsm8k" / f"train.{ending}"
    problems.parent.mkdir(parents=True)
    problems.write_text("a problem")
    (tmp_path / "prepared").unlink()
    assert run(STEPS="7", BENCHMARKS="mine=mine.jsonl") == 9
    assert not (tmp_path / "prepared").exists()
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[-2:] == ["an.argument=1", "another.argument=2"]
    noted = (tmp_path / "recipe" / "runs" / trainer / "tandem" / "protocol").read_text()
    assert "model=Qwen/Qwen2.5-0.5B-Instruct\nresponse=512\n" in noted
    assert noted.endswith("arguments=an.argument=1 another.argument=2\nsteps=7\n")


def test_problems_of_a_changed_file_are_not_trained_on_silently(
    beside: dict[str, str], tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "verl" / "train.sh", tmp_path / "recipe")
    source = tmp_path / "recipe" / "mine.jsonl"
    source.write_text("new")
    prepared = tmp_path / "recipe" / "data" / "mine" / "train.parquet"
    prepared.parent.mkdir(parents=True)
    prepared.touch()
    os.utime(prepared, (1, 1))
    done = subprocess.run(
        ["./train.sh", "grpo"], cwd=tmp_path / "recipe", env=beside | {"PROBLEMS": "mine.jsonl"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "mine.jsonl has changed since data/mine was prepared from it" in done.stderr


def test_command_that_left_nothing_may_be_corrected(
    fake_python: dict[str, str], tmp_path: Path
) -> None:
    assert run_recipe("verl", fake_python, "tandem", "lr=1").returncode == 9
    assert run_recipe("verl", fake_python, "tandem", "lr=2").returncode == 9
    assert "arguments=lr=2\n" in (tmp_path / "run" / "protocol").read_text()
    rollouts = tmp_path / "run" / "rollouts"
    rollouts.mkdir()
    (rollouts / "1.jsonl").touch()
    done = run_recipe("verl", fake_python, "tandem", "lr=1")
    assert done.returncode == 2
    assert "> arguments=lr=1" in done.stderr


def test_model_that_was_replaced_under_its_name_is_another_run(
    fake_python: dict[str, str], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    environment = fake_python | {"MODEL": str(model)}
    assert run_recipe("verl", environment, "grpo").returncode == 9
    (tmp_path / "run" / "rollouts").mkdir()
    (tmp_path / "run" / "rollouts" / "1.jsonl").touch()
    assert run_recipe("verl", environment, "grpo").returncode == 9
    (model / "config.json").write_text('{"hidden_size": 8}')
    done = run_recipe("verl", environment, "grpo")
    assert done.returncode == 2
    assert f"> model={model} (checksum " in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GPUS", "two", "GPUS=two is not a number of 1 or more."),
        ("STEPS", "1e3", "STEPS=1e3 is not a number of 1 or more."),
        ("RESPONSE", "0", "RESPONSE=0 is not a number of 1 or more."),
        ("HELDOUT", "-5", "HELDOUT=-5 is not a number of 1 or more."),
        ("MODEL", "./nowhere", "There is no folder MODEL=./nowhere."),
        ("TRAIN", "nowhere", "There is no file TRAIN=nowhere. Set it to one that `tandem data"),
        ("OUT", f"{__file__}/run", "cannot be a folder. Set another one."),
    ],
)
def test_wrong_variable_is_named_before_anything_starts(
    fake_python: dict[str, str], tmp_path: Path, variable: str, value: str, said: str
) -> None:
    done = run_recipe("verl", fake_python | {variable: value}, "tandem")
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_recipe_that_another_shell_starts_runs_in_bash(
    fake_python: dict[str, str], trainer: str
) -> None:
    if (dash := shutil.which("dash")) is None:
        pytest.skip("dash is not installed.")
    script = EXAMPLES / trainer / "train.sh"
    done = subprocess.run(
        [dash, str(script), "TANDEM"], env=fake_python, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {script} tandem|grpo")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_recipe_outside_its_environment_says_so(trainer: str, tmp_path: Path) -> None:
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    done = run_recipe(trainer, {"PATH": str(tmp_path)}, "tandem")
    assert done.returncode == 2
    assert "Activate the environment that tandem-plugin is installed in." in done.stderr
