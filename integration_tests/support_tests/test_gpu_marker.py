"""``pytest -m gpu``: collected wherever the tests lie, and skipped with a reason without a GPU."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import device

HERE = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.skipif(device.is_gpu(), reason="would run them all")
def test_they_need_neither_the_projects_root_nor_what_other_tests_import(tmp_path: Path) -> None:
    """Nor pytest-timeout."""
    shutil.copytree(HERE, tmp_path / "anywhere", ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--import-mode=importlib",
        "-m",
        "gpu",
        "-rs",
        "-p",
        "no:timeout",
    ]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--import-mode=importlib", "anywhere"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no CUDA device" in run.stdout
    last = run.stdout.splitlines()[-1]
    assert " skipped" in last
    assert "passed" not in last


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"gib": 4}, None),
        ({"gib": 12}, "needs 12 GiB of GPU memory, 8.0 are free"),
        ({"gib": 4, "devices": 2}, "needs 2 CUDA devices, has 1"),
    ],
)
def test_a_test_says_what_it_misses(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], reason: str | None
) -> None:
    monkeypatch.setattr(device, "is_gpu", lambda: True)
    monkeypatch.setattr(device.torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(device.torch.cuda, "mem_get_info", lambda: (8 * 2**30, 80 * 2**30))
    assert device.missing(**asked) == reason


def test_tokenizer_has_the_ids_that_tests_know(tokenizer: Any) -> None:
    known = json.dumps(sorted(tokenizer.get_vocab().items())).encode()
    assert hashlib.sha256(known).hexdigest().startswith("6bd8025d66a59788")
