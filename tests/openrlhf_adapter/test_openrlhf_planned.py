"""OpenRLHF's command takes the arguments that ``tandem plan`` prints."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tandem_plugin.training.command import split_arguments

TANDEM = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]
SIZES = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
}


@pytest.mark.skipif(
    importlib.util.find_spec("openrlhf") is None,
    reason="OpenRLHF is not installed: make test-openrlhf",
)
@pytest.mark.parametrize("more", [[], ["--reference", "--mode", "speculative", "--offload", "all"]])
def test_openrlhf_has_every_argument_of_a_plan(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    command = [*TANDEM, "plan", "--senior", str(tmp_path)]
    command += ["--to", "openrlhf", "--gpus", "2", "--memory", "79", "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    words = [word for flag in json.loads(done.stdout)["flags"] for word in flag.split(" ", 1)]
    tandem, others = split_arguments(words)
    assert ("mode" in tandem) is bool(more)
    found = importlib.util.find_spec("openrlhf.cli.train_ppo_ray")
    assert found is not None
    assert found.origin is not None
    known = set(re.findall(r'"(--[\w.]+)"', Path(found.origin).read_text(encoding="utf-8")))
    assert {word for word in others if word.startswith("--")} <= known
