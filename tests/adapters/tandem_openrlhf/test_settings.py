"""How OpenRLHF's command turns tandem on, in its own process and in the workers of its job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf import train_ppo_ray
from tandem_openrlhf.patches import JOB
from tandem_openrlhf.settings import flags_of_command
from tandem_plugin import TandemConfig
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.ray_workers import FAILURE, check_worker, worker_hook

PATCHES = "tandem_openrlhf.patches"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As if OpenRLHF were there, and nothing in the environment; what ``ray.init`` was given."""
    given: dict[str, Any] = {}
    versions = {"openrlhf": "0.11.2", "vllm": "0.29.0"}
    monkeypatch.setattr("tandem_plugin.training.start.running_version", versions.get)
    monkeypatch.setattr("tandem_openrlhf.patches.PATCHES", ())
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {})
    ray = ModuleType("ray")
    ray.init = lambda address=None, **more: given.update(more, address=address)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back after the test
    return given


SOUND = ["--algo.advantage.estimator", "group_norm", "--vllm.num_engines", "1"]
WORD = ["--tandem.schedule", "word"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (SOUND, "tandem-settings-missing"),
        ([*SOUND, "--tandem.p", "1.5"], "parameter-not-probability"),
        # Of OpenRLHF's arguments, before OpenRLHF reads them.
        (WORD, "openrlhf-engine-not-vllm"),  # its default
        ([*WORD, *SOUND, "--data.max_images_per_prompt", "1"], "openrlhf-images-differ"),
        ([*WORD, "--algo.advantage.est=rloo", "--vllm.num_engines=0"], "openrlhf-engine-not-vllm"),
    ],
)
def test_command_refuses_before_anything_starts(arguments: list[str], code: str) -> None:
    with pytest.raises(SystemExit, match=code):
        train_ppo_ray.main([*arguments, "--other.flag", "1"])


@pytest.mark.usefixtures("installed")
def test_image_model_and_junior_that_is_not_there_end_the_command(tmp_path: Path) -> None:
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ["--actor.model_name_or_path", str(tmp_path)]
    with pytest.raises(SystemExit, match="multimodal-model-unsupported"):
        train_ppo_ray.main([*SOUND, "--tandem.schedule", "word", *model])
    with pytest.raises(SystemExit, match="junior-not-checkpoint"):
        train_ppo_ray.main([*SOUND, "--tandem.schedule=word", "--tandem.junior=/nonexistent"])


def ray_init(*args: Any, **more: Any) -> None:
    sys.modules["ray"].init(*args, **more)


def test_job_is_started_with_what_makes_its_workers_ready(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train_ppo_ray.prepare(TandemConfig(schedule="chunk"))
    given = {"env_vars": {"A": "1"}}
    ray_init("local", runtime_env=given, num_cpus=2)
    assert given == {"env_vars": {"A": "1"}}
    sent = installed.pop("runtime_env")
    assert installed == {"address": "local", "num_cpus": 2}
    assert sent["env_vars"] == {"A": "1"}
    make_ready = sent["worker_process_setup_hook"]
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr("tandem_plugin.patching.in_place._PLACED", {})
    driver = TandemConfig.from_mapping({"schedule": "chunk"}).settings()
    with refused("worker-setup-hook-not-called", actor="Engine", why="was not prepared for it"):
        check_worker(JOB, "Engine", driver)
    make_ready()
    check_worker(JOB, "Engine", driver)
    with refused("worker-setup-hook-not-called", actor="Engine", why="has different settings"):
        check_worker(JOB, "Engine", {**driver, "schedule": "word"})


def test_worker_that_cannot_be_made_ready_starts_and_says_why(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would start workers for ever, were its hook to fail."""
    monkeypatch.setenv(FAILURE, "")
    train_ppo_ray.prepare(TandemConfig())
    ray_init()
    monkeypatch.setattr("tandem_openrlhf.patches.PATCHES", [("openrlhf.renamed", print)])
    installed["runtime_env"]["worker_process_setup_hook"]()
    with refused("worker-not-prepared", actor="Engine"):
        check_worker(JOB, "Engine", {})


def test_node_without_the_package_can_read_what_makes_its_workers_ready() -> None:
    cloudpickle = pytest.importorskip("ray.cloudpickle", reason="Ray is not installed")
    sent = cloudpickle.dumps(worker_hook({"schedule": "word"}, PATCHES))
    program = (
        "import os, sys, ray.cloudpickle\n"
        "sys.modules['tandem_openrlhf'] = sys.modules['tandem_plugin'] = None\n"
        f"ray.cloudpickle.loads({sent!r})()\n"
        f"print(os.environ[{FAILURE!r}])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("ModuleNotFoundError: ")
    assert "'tandem_openrlhf'" in said


@pytest.mark.usefixtures("installed")
def test_command_hands_everything_else_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached: list[list[str]] = []
    monkeypatch.setattr("runpy.run_module", lambda *_, **__: reached.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv(VARIABLE, '{"schedule": "word", "p": 0.25}')
    sound = [*SOUND, "--other", "x"]
    unproven = [*sound[2:], "--algo.advantage.estimator", "newer"]
    filtered = [*sound, "--rollout.top_p=0.9"]
    for arguments in (sound, ["--help"], unproven, filtered):
        train_ppo_ray.main(["--tandem.cap=4", "--tandem.unproven", '["estimator"]', *arguments])
    assert reached == [sound, ["--help"], unproven, filtered]
    settings = json.loads(os.environ[VARIABLE])  # flags are laid over the variable
    assert (settings["schedule"], settings["p"], settings["cap"]) == ("word", 0.25, 4)
    said = capsys.readouterr().err
    assert "estimator newer was not tested" in said
    assert said.count("WARNING: --rollout.top_p=0.9: tokens are sampled from another") == 1


def test_trainers_own_flags_are_read_before_it_parses_them() -> None:
    flags = {"--a.kind": {"type": str, "default": "gae"}, "--a.on": {"action": "store_true"}}
    read = flags_of_command(["--other", "1", "--a.kind=rloo", "-h"], flags)
    assert [read[flag] for flag in ("--a.kind", "--a.on", "--help")] == ["rloo", False, True]


THEIRS = {
    "--algo.advantage.gama 1": "unrecognized arguments: --algo.advantage.gama 1",
    "--vllm.num_engins=2": "unrecognized arguments: --vllm.num_engins=2",
    "--rollout.batchsize 4": "unrecognized arguments: --rollout.batchsize 4",
    "oops": "unrecognized arguments: oops",
    "--actor.policy_loss_type": "argument --actor.policy_loss_type: expected one argument",
}
"""What OpenRLHF's own parser says of an argument that it does not read."""

COMMANDS = """
import contextlib, io, json, shlex, sys
from tandem_openrlhf import train_ppo_ray
from tandem_openrlhf.patches import JOB
said, (wrongs, sound) = {}, map(json.loads, sys.argv[1:])
for wrong in wrongs:
    with contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            train_ppo_ray.main([*sound, *shlex.split(wrong)])
        except SystemExit as end:
            said[wrong] = f"{end.code} {error.getvalue()}"
print(json.dumps(said))
"""


def test_misspelt_argument_of_openrlhf_is_an_error_of_its_own() -> None:
    """In one process, which imports OpenRLHF once; its command needs no flash-attn to be read."""
    pytest.importorskip("openrlhf.cli", reason="OpenRLHF is not installed")
    adapters = Path(train_ppo_ray.__file__).parents[1]
    places = [str(adapters / "tandem_openrlhf" / "without_flash_attn"), str(adapters.parent)]
    environ = {k: v for k, v in os.environ.items() if k != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([*THEIRS]), json.dumps([*WORD, *SOUND])],
        capture_output=True,
        text=True,
        env=environ | {"PYTHONPATH": ":".join([*places, str(adapters)])},
        check=True,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert [*said] == [*THEIRS]
    for wrong, message in THEIRS.items():
        assert said[wrong].startswith("2 "), wrong
        assert message in said[wrong]


@pytest.mark.usefixtures("installed")
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
def test_misspelt_setting_of_tandem_names_the_nearest(argument: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        train_ppo_ray.main([*SOUND, argument])
