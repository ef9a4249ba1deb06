"""``python -m tandem_trl.grpo`` and the three trainers started from one settings file."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from made_runs import command_of, made_run
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.training import start
from tandem_plugin.training.command import PREFIX, split_arguments
from tandem_trl import grpo

ROOT = Path(__file__).parents[3]
TRAIN = ROOT / "examples" / "swap_backends" / "train.py"
VERL = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem."


def command(backend: str, tmp_path: Path) -> list[str]:
    """What the example would start, without the interpreter."""
    settings = json.loads(TRAIN.with_name("settings.json").read_text())
    settings["tandem"] = {"schedule": "word", "p": 0.25, "cap": 9, "seed": 5, "junior": "a/b"}
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings))
    arguments = ["--backend", backend, "--data", "data", "--settings", file, "--dry-run"]
    done = subprocess.run(
        [sys.executable, TRAIN, *arguments], capture_output=True, text=True, check=True
    )
    return shlex.split(done.stdout)[1:]


def settings_of(backend: str, started: list[str]) -> dict[str, Any]:
    """Tandem's settings as the trainer's adapter reads them off its command."""
    if backend != "verl":
        return split_arguments(started)[0]
    flags = [f"{PREFIX}{one.removeprefix(VERL)}" for one in started if one.startswith(VERL)]
    return split_arguments(flags)[0]


def test_one_settings_file_is_the_same_run_in_every_trainer(tmp_path: Path) -> None:
    given = {}
    for backend in ("verl", "openrlhf", "trl", "skyrl"):
        settings = settings_of(backend, command(backend, tmp_path))
        settings.pop("rollouts", None)
        given[backend] = TandemConfig.from_mapping(settings)
    assert given["verl"] == given["openrlhf"] == given["trl"] == given["skyrl"]
    assert given["trl"].parameters == {"p": 0.25, "cap": 9}
    assert (given["trl"].seed, given["trl"].junior) == (5, "a/b")


def test_command_without_trl_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "running_version", lambda name: None)
    with pytest.raises(SystemExit, match=r"trl is not installed .* \[trainer-not-installed\]"):
        grpo.main(["--tandem.schedule", "word"])


def installed_trl() -> ModuleType:
    """TRL, or the test is skipped. A folder of that name on the path, examples/trl, is not TRL."""
    pytest.importorskip("trl.scripts", reason="TRL is not installed")
    return importlib.import_module("trl")


def test_trl_reads_its_part_of_the_command(tmp_path: Path) -> None:
    installed_trl()
    from trl.scripts.grpo import make_parser

    _, others = split_arguments(command("trl", tmp_path)[2:])
    cpu = ["--use_cpu", "True", "--bf16", "False"]
    _, training, model, _ = make_parser().parse_args_and_config([*others, *cpu])[:4]
    assert model.model_name_or_path == "Qwen/Qwen3-1.7B"
    assert training.generation_batch_size == 16 * 8
    assert training.gradient_accumulation_steps * training.per_device_train_batch_size == 16 * 8
    assert (training.vllm_mode, training.use_vllm) == ("colocate", True)


@pytest.mark.parametrize("arguments", [["--max_steps", "1"], ["--tandem.engine", '{"a": 1}']])
def test_command_without_settings_is_rejected(arguments: list[str]) -> None:
    installed_trl()
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl.grpo import prepare

    with refused("tandem-settings-missing"):
        prepare(arguments)


def test_command_gives_trls_script_a_trainer_in_tandem(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = installed_trl()
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl import engine
    from tandem_trl.grpo import prepare

    original = trl.GRPOTrainer
    monkeypatch.setattr(trl, "GRPOTrainer", original)
    monkeypatch.setattr(engine, "_next", [])
    others = prepare(["--tandem.schedule=word", "--tandem.p", "0.25", "--max_steps", "1"])
    assert others == ["--max_steps", "1"]
    assert trl.GRPOTrainer.func is original
    rollouts = trl.GRPOTrainer.keywords["rollout_func"]
    assert rollouts.config.parameters == {"p": 0.25}
    assert len(engine._next) == 1


def started(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], variable: str = ""
) -> tuple[dict[str, Any], Any]:
    """The settings of a command, engine arguments among them, and TRL's arguments."""
    trl = installed_trl()
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl import grpo

    found: dict[str, Any] = {}

    def rollouts(config: TandemConfig, engine: Any) -> Any:
        found.update(
            config.model_dump(exclude_unset=True), **({"engine": engine} if engine else {})
        )
        return config

    monkeypatch.setenv("TANDEM_CONFIG", variable)
    monkeypatch.setattr(trl, "GRPOTrainer", trl.GRPOTrainer)
    monkeypatch.setattr(grpo, "TandemRollouts", rollouts)
    parser = trl.scripts.grpo.make_parser()
    others = grpo.prepare(arguments)
    return found, grpo.parsed_whole(parser, others)[1]


def with_yaml(folder: Path, yaml: str, *arguments: str) -> list[str]:
    """A command with a file of these settings beside those of a run on a CPU."""
    file = folder / "run.yaml"
    file.write_text(f"output_dir: out\nuse_cpu: true\nbf16: false\n{yaml}")
    return ["--config", str(file), *arguments]


@pytest.mark.parametrize(
    ("yaml", "arguments", "variable", "settings"),
    [
        ("tandem: {schedule: word, p: 0.3}", [], "", {"schedule": "word", "p": 0.3}),
        ("tandem.p: 0.3\ntandem: {schedule: word}", [], "", {"schedule": "word", "p": 0.3}),
        ("env: {TANDEM_CONFIG: '{\"p\": 0.3}'}", [], "", {"p": 0.3}),
        ("env: {TANDEM_CONFIG: {p: 0.3}}\ntandem: {cap: 4}", [], "", {"p": 0.3, "cap": 4}),
        ("tandem: {p: 0.4, cap: 5}", [], '{"p": 0.4}', {"p": 0.4, "cap": 5}),
        ("env: {TANDEM_CONFIG: {cap: 5}}", [], '{"p": 0.4}', {"p": 0.4, "cap": 5}),
        ("tandem.p: 0.5", ["--tandem.p", "0.5"], '{"cap": 4}', {"p": 0.5, "cap": 4}),
        (
            "tandem: {p: 0.3, engine: {enforce_eager: true}}",
            [],
            "",
            {"p": 0.3, "engine": {"enforce_eager": True}},
        ),
        ("tandem:", ["--tandem.p=0.5"], "", {"p": 0.5}),
    ],
)
def test_settings_come_from_file_environment_and_flags_together(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    yaml: str,
    arguments: list[str],
    variable: str,
    settings: dict[str, Any],
) -> None:
    command = with_yaml(tmp_path, f"max_steps: 3\n{yaml}", *arguments)
    found, training = started(monkeypatch, command, variable)
    assert found == settings
    assert training.max_steps == 3


@pytest.mark.parametrize(
    ("yaml", "arguments", "variable"),
    [
        ("env: {TANDEM_CONFIG: {p: 0.3}}\ntandem: {p: 0.4}", [], ""),
        ("tandem: {p: 0.3}", [], '{"p": 0.4}'),
        ("env: {TANDEM_CONFIG: {p: 0.3}}", [], '{"p": 0.4}'),
        ("tandem.p: 0.3", ["--tandem.p", "0.4"], ""),
        ("max_steps: 3", ["--tandem.p", "0.3"], '{"p": 0.4}'),
    ],
)
def test_setting_with_two_values_is_rejected_with_both_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, yaml: str, arguments: list[str], variable: str
) -> None:
    with refused("tandem-setting-overridden", name="p") as caught:
        started(monkeypatch, with_yaml(tmp_path, yaml, *arguments), variable)
    assert {caught.value.fields["value"], caught.value.fields["other"]} == {0.3, 0.4}


@pytest.mark.parametrize(
    ("yaml", "arguments", "code", "fields"),
    [
        ("tandem_p: 0.3", [], "tandem-flag-invalid", {"name": "p"}),
        ("Tandem: {p: 0.3}", [], "tandem-flag-invalid", {}),
        ("vllm.tandem.p: 0.3", [], "tandem-flag-invalid", {"name": "p"}),
        ("tandem: word", [], "trl-config-not-mapping", {"value": "word"}),
        ("tandem: {p: 0.3}\ntandem.p: 0.4", [], "tandem-flag-twice", {"name": "p"}),
        ("tandem: {q: 0.3}", [], "setting-unknown", {"key": "q"}),
        ("env: {TANDEM_CONFIG: word}", [], "tandem-variable-not-json", {"text": "word"}),
        (
            "max_step: 3",
            [],
            "trl-config-key-unknown",
            {"name": "max_step", "meant": " Did you mean 'max_steps'?"},
        ),
        (
            "",
            ["--leraning_rate", "1"],
            "trl-config-key-unknown",
            {"meant": " Did you mean 'learning_rate'?"},
        ),
        ("", ["oops"], "trl-config-key-unknown", {"name": "oops"}),
        ("  - nothing: [", [], "trl-config-unreadable", {}),
        ("3: 4", [], "trl-config-unreadable", {}),
    ],
)
def test_what_nobody_reads_in_a_file_or_command_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    yaml: str,
    arguments: list[str],
    code: str,
    fields: dict[str, Any],
) -> None:
    with refused(code, **fields):
        command = with_yaml(tmp_path, yaml, "--tandem.schedule", "word", *arguments)
        started(monkeypatch, command)


def test_file_of_a_command_may_follow_an_equals_sign(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed_trl()
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from tandem_trl import grpo

    monkeypatch.delenv("TANDEM_CONFIG", raising=False)
    with refused("trl-config-unreadable", path=str(tmp_path / "none.yaml")):
        grpo.prepare([f"--config={tmp_path / 'none.yaml'}"])


@pytest.mark.parametrize("flag", ["--config {}", "--config={}"])
def test_file_of_windows_in_the_home_is_read_by_tandem_and_by_trl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "output_dir: out\nuse_cpu: true\nbf16: false\nmax_steps: 3\ntandem: {p: 0.3}\n"
    (tmp_path / "windows.yaml").write_bytes(BOM_UTF8 + text.replace("\n", "\r\n").encode())
    monkeypatch.chdir(tmp_path)
    found, training = started(monkeypatch, flag.format("~/windows.yaml").split())
    assert (found, training.max_steps) == ({"p": 0.3}, 3)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--model_name_or_path", "{vl}"], "multimodal-model-unsupported"),
        (["--use_vllm=False"], "trl-engine-not-vllm"),
        (["--loss_type", "own"], "trainer-setting-untested"),
        (["--tandem.junior={vl}"], "multimodal-model-unsupported"),
        (["--tandem.junior=/nonexistent"], "junior-not-checkpoint"),
        (["--tandem.engine", '{"pipeline_parallel_size": 2}'], "pipeline-parallel-unsupported"),
        (
            ["--tandem.engine", '{"speculative_config": {"method": "ngram"}}'],
            "speculative-config-unsupported",
        ),
    ],
)
def test_command_ends_before_a_model_is_loaded(
    arguments: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = installed_trl()
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from trl.scripts import grpo as script

    from tandem_trl import engine, grpo

    monkeypatch.setattr(script, "main", lambda *parsed: pytest.fail("TRL's script was started"))
    monkeypatch.setattr(trl, "GRPOTrainer", trl.GRPOTrainer)
    monkeypatch.setattr(engine, "_next", [])
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    own = ["--output_dir", str(tmp_path), "--use_cpu", "True", "--bf16", "False"]
    own += ["--use_vllm", "True"]
    given = [one.replace("{vl}", str(tmp_path)) for one in arguments]
    with pytest.raises(SystemExit, match=code):
        grpo.main(["--tandem.schedule=word", *own, *given])


def test_rewards_are_those_of_the_columns_that_a_data_set_has() -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    texts = ["so \\boxed{4}", "so \\boxed{5}", "nothing"]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    logged: dict[str, float] = {}
    golds = {"reward_model": [{"ground_truth": "4"}] * 3}
    assert math_reward(chats, log_metric=logged.__setitem__, **golds) == [1.0, 0.0, 0.0]
    assert logged["grading/correct"] == pytest.approx(1 / 3)
    assert logged["grading/no_answer"] == pytest.approx(1 / 3)
    assert math_reward(texts, answer=["4", "#### 5", "6"]) == [1.0, 1.0, 0.0]
    with refused("answers-column-missing", columns="question"):
        math_reward(texts, question=["a", "b", "c"])


def test_a_row_takes_its_gold_from_its_own_first_column_that_is_not_blank() -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    columns = {
        "answer": ["4", "", None, float("nan"), [], " "],
        "solution": ["5", "so \\boxed{5}", "We add. The answer is 5.", "5", None, None],
        "ground_truth": [None, None, "", None, "5", None],
    }
    shares: dict[str, float] = {}
    texts = ["\\boxed{4}", *["\\boxed{5}"] * 5]
    rewards = math_reward(texts, log_metric=shares.__setitem__, **columns)
    assert rewards == [1.0, 1.0, 1.0, 1.0, 1.0, None]
    assert shares["grading/correct"] == 1.0
    assert math_reward(["\\boxed{5}"] * 2, answer=[None, ""]) == [None, None]
    assert math_reward([], answer=[], log_metric=shares.__setitem__) == []


def test_completions_come_as_texts_chats_and_parts() -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    parts = [{"type": "text", "text": "so "}, {"type": "text", "text": "\\boxed{5}"}]
    right: list[Any] = [
        "\\boxed{5}",
        parts,
        [{"role": "assistant", "content": parts}],
        [{"role": "assistant", "content": "\\boxed{5}"}, {"role": "tool", "content": "\\boxed{6}"}],
    ]
    none: list[Any] = ["", None, [], [{"role": "assistant", "content": None}]]
    none += [[{"role": "assistant", "content": []}], [{"role": "tool", "content": "\\boxed{5}"}]]
    rewards = math_reward([*right, *none], answer=["5"] * (len(right) + len(none)))
    assert rewards == [1.0] * len(right) + [0.0] * len(none)


def test_an_answer_copied_from_the_prompt_earns_nothing() -> None:
    pytest.importorskip("sympy", reason="SymPy is not installed")
    from tandem_plugin.grading.rewards.trl_reward import math_reward

    asked = "17\\cdot 23\nPut your answer within \\boxed{}."
    chat = [{"role": "user", "content": asked}]
    in_parts = [{"role": "user", "content": [{"type": "text", "text": asked}]}]
    copied = ["\\boxed{17\\cdot 23}"]
    for prompt in (asked, chat, in_parts):
        assert math_reward(copied, prompts=[prompt], answer=["391"]) == [0.0]
    assert math_reward(copied, extra_info=[{"problem": asked}], answer=["391"]) == [0.0]
    assert math_reward(copied, prompts=["Multiply."], answer=["391"]) == [1.0]


@pytest.mark.parametrize("method", ["tandem", "grpo", "kl-reg", "grpo-g16", "grpo-half"])
def test_the_papers_recipe_has_the_hyperparameters_of_its_appendix(
    method: str, tmp_path: Path
) -> None:
    """As TRL reads its arguments: 128 responses of 16 problems are trained on in two updates."""
    installed_trl()
    from trl.scripts import grpo as script

    kept = command_of(made_run("trl", tmp_path, method=method, device="cpu"))
    settings, arguments = split_arguments(kept[kept.index("-m", 2) + 2 :])
    assert ("tandem_trl.grpo" in kept) is bool(settings)
    schedule = {"tandem": "word", "grpo-half": "solo-word"}.get(method)
    if schedule:
        tandem = TandemConfig.from_mapping(
            {k: v for k, v in settings.items() if k not in ("rollouts", "engine")}
        )
        assert (tandem.schedule, tandem.parameters) == (schedule, {"p": 0.5, "cap": 32})
    assert bool(settings) is bool(schedule)
    _, found, model, *_ = grpo.parsed_whole(script.make_parser(prog="a test"), arguments)
    assert model.model_name_or_path == "Qwen/Qwen3-4B-Instruct-2507"
    samples = 16 if method == "grpo-g16" else 8
    stated = {
        "learning_rate": 1e-6, "epsilon": 0.2, "num_generations": samples,
        "beta": 0.001 if method == "kl-reg" else 0.0,
        "max_completion_length": 3000, "temperature": 0.6, "scale_rewards": "group",
        "generation_batch_size": 16 * samples, "max_steps": 500,
    }  # fmt: skip
    assert {name: getattr(found, name) for name in stated} == stated
    update = found.per_device_train_batch_size * found.gradient_accumulation_steps
    assert update == 8 * samples


CPU = ("--use_cpu", "True", "--bf16", "False")
