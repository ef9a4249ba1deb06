"""The notebook and the README's lines of Python, from top to bottom on a CPU."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.commands import run

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_steps.ipynb"


def typed(program: str, folder: Path) -> str:
    """Run a program as a file of its own; what it printed."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return run([sys.executable, str(file)], patience=600).stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    shown = (
        "\nassert 'solid' in response._repr_html_()\nassert 'dotted' in response._repr_html_()\n"
    )
    said = typed("\n\n".join(code) + shown, tmp_path)
    (share, handoffs) = re.findall(r"(\d+)% by the senior, (\d+) handoffs", said)[0]
    assert 0 < int(share) < 100
    assert int(handoffs) > 0
    shares = json.loads(re.sub(r"(0\.\d):", r'"\1":', said.strip().splitlines()[-1]))
    assert shares["0.1"] < shares["0.5"] < shares["0.9"]


def wait_for_memory(share: float, patience: float = 600) -> None:
    """Until so much of the machine's memory is there: trainers are tested beside it."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        memory = psutil.virtual_memory()
        if memory.available >= share * memory.total:
            return
        time.sleep(2)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_first_lines_of_the_readme_run(
    tmp_path: Path, checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "TandemLLM" in c]
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)  # a laptop has it not
    assert os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") is None
    wait_for_memory(0.5)  # the lines take 0.4 of it, as on a machine of one's own
    said = typed(code.replace("Qwen/Qwen3-0.6B", str(checkpoints["senior"])), tmp_path)
    assert re.search(r"\(.*Span\(start=0, stop=", said)
