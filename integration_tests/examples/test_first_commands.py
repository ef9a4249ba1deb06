"""The first `tandem rollout` on a CPU: no option says anything of the engine.

The senior is the untrained model of the page on installing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.commands import TANDEM

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "VLLM_CPU_KVCACHE_SPACE"}
    return subprocess.run(
        [*TANDEM, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )


@pytest.fixture
def untrained(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("Qwen/Qwen2.5-0.5B-Instruct", str(checkpoints["senior"])), {})
    return tmp_path / "tiny"


def test_a_team_answers(
    untrained: Path, checkpoints: dict[str, Path], problems: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rollouts.jsonl"
    models = ("--senior", untrained, "--junior", checkpoints["other"])
    done = run("rollout", *models, "--problems", problems, "--out", out, "--max-tokens", 8)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(out.read_text().splitlines()) == 2
    assert "On this CPU the engine uses " in done.stderr
