"""docs/trl.md says of TRL's own scripts what the adapter's checks say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("trl.scripts", reason="TRL is not installed")
pytest.importorskip("vllm", reason="vLLM is not installed")

import trl_scripts


def test_page_has_the_table_that_the_checks_make() -> None:
    assert trl_scripts.PAGE.read_text(encoding="utf-8") == trl_scripts.page()


def test_every_kind_of_script_is_judged() -> None:
    scripts = {one["script"]: one for one in json.loads(trl_scripts.FILE.read_text())}
    answers = {name: trl_scripts.verdict(one) for name, one in scripts.items()}
    assert answers["grpo_agent.py"] == ("yes", "`rollout_func=tandem_rollouts(...)`")
    assert answers["async_grpo.py"] == ("yes", "`rollout_worker=TandemRolloutWorker(...)`")
    assert answers["grpo_continuous_batching.py"][0] == "no"
    assert answers["openenv/opencode.py"][0] == "no"
    assert answers["grpo_vlm.py"] == ("yes", "`rollout_func=tandem_rollouts(images=True, ...)`")
    assert answers["openenv/carla_vlm.py"] == answers["grpo_vlm.py"]
    assert answers["openenv/carla_vlm_gemma.py"][0] == "no"


def test_script_is_read_by_what_it_passes_to_its_trainer(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "scripts" / "own"
    folder.mkdir(parents=True)
    (folder / "one.py").write_text("trainer = GRPOTrainer(model='a', tools=[print])\n")
    (folder / "vlm.py").write_text("GRPOTrainer(model='Qwen/Qwen3-VL-2B', rollout='Qwen2.5-VL')\n")
    (folder / "other.py").write_text("trainer = SFTTrainer(model='a')\n")
    one, vlm = trl_scripts.scripts_of(tmp_path)
    assert (one["script"], one["tools"], one["environments"]) == ("own/one.py", True, False)
    assert (one["images"], vlm["images"]) == ("", "Qwen3VLForConditionalGeneration")
