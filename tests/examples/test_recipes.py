"""What the recipes keep of a run, and which problems a run of OpenRLHF sees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import module_of

from tandem_plugin import TandemError
from tandem_plugin.lab.protocols import template_arguments

EXAMPLES = Path(__file__).parents[2] / "examples"


def module(name: str) -> Any:
    return module_of(EXAMPLES / name)


@pytest.fixture
def keeping() -> Any:
    return module("verl/keep_seniors.py")


def train(keeping: Any, run: Path, accuracies: dict[int, float | None]) -> None:
    """As verl does: a checkpoint, the callback, and then the validation of the same step."""
    config = SimpleNamespace(trainer=SimpleNamespace(default_local_dir=run / "checkpoints"))
    callback = keeping.KeepSeniors(config)
    for step, accuracy in accuracies.items():
        checkpoint = run / "checkpoints" / f"global_step_{step}"
        (checkpoint / "actor" / "huggingface").mkdir(parents=True)
        (checkpoint / "actor" / "huggingface" / "config.json").write_text(str(step))
        callback.on_save(None, global_step=step, checkpoint_dir=str(checkpoint), async_save=False)
        if accuracy is not None:
            with (run / "train.log").open("a") as log:
                log.write(f"step:{step} - team/val-core/sums/acc/mean@4:{accuracy}\n")


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("seniors/*"))


def test_the_best_senior_and_those_not_validated_yet_are_kept(keeping: Any, tmp_path: Path) -> None:
    train(keeping, tmp_path, {1: 0.25, 2: 0.75, 3: 0.5, 4: 0.5, 5: None})
    assert kept(tmp_path) == ["step_2", "step_5"]
    assert keeping.best_senior(tmp_path) == tmp_path / "seniors" / "step_2"
    assert (tmp_path / "seniors" / "step_2" / "config.json").read_text() == "2"


def test_a_better_senior_takes_the_place_of_the_best(keeping: Any, tmp_path: Path) -> None:
    train(keeping, tmp_path, {1: 0.25, 2: 0.5, 3: None})
    assert kept(tmp_path) == ["step_2", "step_3"]


def test_without_validation_all_are_kept_and_the_newest_is_taken(
    keeping: Any, tmp_path: Path
) -> None:
    train(keeping, tmp_path, {9: None, 10: None})
    assert kept(tmp_path) == ["step_10", "step_9"]
    assert keeping.best_senior(tmp_path).name == "step_10"


def test_a_run_that_kept_none_is_told(keeping: Any, tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"holds no senior: train with trainer\.save_freq"):
        keeping.best_senior(tmp_path)


def test_a_run_of_openrlhf_sees_each_problem_as_often_as_any_other() -> None:
    choose = module("openrlhf/choose_problems.py")
    lines = [str(i) for i in range(10)]
    found = choose.chosen(lines, 24)
    assert sorted(found[:10]) == sorted(found[10:20]) == lines
    assert found[:10] != found[10:20]
    assert set(Counter(found).values()) == {2, 3}
    assert found == choose.chosen(lines, 24)
    assert len(set(choose.chosen(lines, 4))) == 4


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
    ],
)
def test_a_finished_run_prints_its_next_commands_again(
    framework: str, given: list[str], repeated: str, tmp_path: Path
) -> None:
    """With the arguments of the chat template that it was trained with."""
    if framework == "verl" and given:
        pytest.importorskip("hydra")
    out = tmp_path / "runs" / framework / "tandem"
    out.mkdir(parents=True)
    (out / "done").write_text("250\n")
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
    """An environment whose ``python -m TRAINER`` keeps its arguments and fails."""
    real = sys.executable
    script = tmp_path / "bin" / "python"
    script.parent.mkdir()
    kept = tmp_path / "arguments"
    script.write_text(
        f'#!/bin/sh\ncase $2 in *protocols|*choose_problems*) exec {real} "$@" ;; esac\n'
        f"case $1 in -m) printf '%s\\n' \"$@\" >{kept}; exit 9 ;; -c) exit 1 ;; esac\nexit 0\n"
    )
    script.chmod(0o755)
    tandem = script.with_name("tandem")
    tandem.write_text("#!/bin/sh\necho given\n")
    tandem.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(EXAMPLES.parent),
        "OUT": str(tmp_path / "run"),
        "RAY_TMPDIR": str(tmp_path),
    }


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
@pytest.mark.parametrize(
    ("protocol", "cap", "validation", "samples", "steps"),
    [("paper", "32", "team", "4", "250"), ("release", "31", "senior", "1", "4912")],
)
def test_recipe_trains_by_the_protocol_and_records_it(
    fake_python: dict[str, str], tmp_path: Path, trainer: str, protocol: str, cap: str,
    validation: str, samples: str, steps: str,
) -> None:  # fmt: skip
    given = ["--protocol", protocol, "an.argument=1"]
    recipe = EXAMPLES / trainer / "train.sh"
    done = subprocess.run(
        ["bash", str(recipe), "tandem", *given], env=fake_python, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0  # as the trainer's
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert "an.argument=1" in arguments
    assert "--protocol" not in arguments
    named = "=".join if trainer == "verl" else "\n".join
    text = "\n".join(arguments)
    for setting, value in (("tandem.cap", cap), ("tandem.validation", validation)):
        assert named((setting, value)) in text
    validated = "val_kwargs.n" if trainer == "verl" else "eval.n_samples_per_prompt"
    assert named((validated, samples)) in text
    if trainer == "verl":
        assert f"total_training_steps={steps}" in text
    noted = (tmp_path / "run" / "protocol").read_text()
    assert f"protocol={protocol}\n" in noted
    assert noted.endswith(f"arguments=an.argument=1\nsteps={steps}\n")


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
def test_recipe_refuses_the_folder_of_another_run_and_names_the_difference(
    fake_python: dict[str, str], tmp_path: Path, trainer: str
) -> None:
    recipe, note = EXAMPLES / trainer / "train.sh", tmp_path / "run" / "protocol"
    data = tmp_path / "problems"
    data.write_text("one")

    def run(
        *given: str, method: str = "tandem", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(recipe), method, *given],
            env=fake_python | {"TRAIN": str(data), "MODEL": "A/B"} | variables,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert run("lr=1").returncode == 9  # as the trainer's
    (tmp_path / "run" / "done").write_text("250\n")  # a finished run is told apart, too
    noted, changed = note.read_text(), tmp_path / "changed"
    changed.write_text("two")
    for arguments, variables, difference in (
        (["lr=5"], {}, "> arguments=lr=5"),
        (["lr=1"], {"MODEL": "A/C"}, "> model=A/C"),
        (["lr=1"], {"TRAIN": str(changed)}, f"> train={changed} (checksum "),
        (["lr=1"], {"method": "grpo"}, "> method=grpo"),
        (["--protocol", "release", "lr=1"], {}, "> protocol=release"),
    ):
        done = run(*arguments, **variables)
        assert done.returncode == 2
        assert difference in done.stderr
        assert "tandem eval" not in done.stdout
        assert note.read_text() == noted
    data.write_text("other problems under the same name")
    assert "(checksum" in run("lr=1").stderr
    data.write_text("one")
    assert "has all of its 250 steps" in run("lr=1").stdout
    assert run("lr=1", STEPS="300").returncode == 9  # the same run, for longer
    assert note.read_text().endswith("steps=300\n")


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
@pytest.mark.parametrize(
    ("shown", "gpus", "given", "environment", "starts"),
    [
        ("0", "1", [], {}, False),
        ("1", "2", [], {}, False),
        ("1", "1", [], {}, True),
        ("8", "2", [], {}, True),
        ("0", "1", [], {"RAY_ADDRESS": "auto"}, True),
        ("0", "1", [], {"RAY_TMPDIR": "started"}, True),
        ("0", "1", [], {"TRIAL": "1"}, True),
        ("0", "1", ["trainer.device=cpu"], {}, True),
        ("1", "2", ["trainer.n_gpus_per_node=1"], {}, True),
        ("1", "2", ["--actor.num_gpus_per_node", "1"], {}, True),
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
    done = subprocess.run(
        ["bash", str(EXAMPLES / trainer / "train.sh"), "tandem", *given],
        env={**fake_python, "GPUS": gpus, **environment}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (9 if starts else 2), done.stderr
    assert (tmp_path / "arguments").exists() is starts
    said = f"This machine shows {shown} GPUs, and the run needs {gpus} (GPUS={gpus})"
    assert (said in done.stderr) is not starts
    assert (tmp_path / "run" / "protocol").exists() is starts  # the folder is still any run's


@pytest.mark.skipif(find_spec("torch") is None, reason="torch, which counts GPUs, is not installed")
def test_recipe_on_this_machine_sees_no_gpu_that_is_hidden(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OUT": str(tmp_path), "GPUS": "1", "PATH": path}
    hidden["RAY_TMPDIR"] = str(tmp_path)
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
    recipe = ["bash", str(EXAMPLES / "verl" / "train.sh"), method]
    subprocess.run(recipe, env=fake_python, capture_output=True, check=False)
    arguments = (tmp_path / "arguments").read_text()
    assert (f"+actor_rollout_ref.rollout.agent.{MANAGER}\n" in arguments) is is_named


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/verl.md", "examples/tandem-plugin-curriculum/README.md"],
)
def test_page_that_enables_tandem_in_verl_names_the_manager(page: str) -> None:
    assert MANAGER in (EXAMPLES.parent / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
def test_recipe_stops_where_the_protocol_cannot_be_followed(
    fake_python: dict[str, str], tmp_path: Path, trainer: str
) -> None:
    recipe = ["bash", str(EXAMPLES / trainer / "train.sh"), "tandem", "--protocol"]
    for given, code in (
        (["release", "x.lambda_jun=0.1"], "protocol-junior-loss-weight"),
        (["mine"], "protocol-unknown"),
    ):
        done = subprocess.run(
            [*recipe, *given], env=fake_python, capture_output=True, text=True, check=False
        )
        assert (done.returncode, code in done.stderr) == (2, True)
    assert not (tmp_path / "arguments").exists()
