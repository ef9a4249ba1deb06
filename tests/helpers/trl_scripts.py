"""Which of TRL's own scripts for GRPO go with tandem: the table of docs/trl.md.

``python tests/helpers/trl_scripts.py CHECKOUT`` reads the scripts of a checkout of TRL's repository
into ``trl_scripts.json``; without an argument it only writes the table. The adapter's own checks
decide: a test fails where the page says something else.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FILE = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "trl.md"
BEGIN, END = "<!-- scripts: begin -->\n", "<!-- scripts: end -->\n"
TRAINERS = ("GRPOTrainer", "AsyncGRPOTrainer")
CLASSES = {
    "Qwen2.5-VL": "Qwen2_5_VLForConditionalGeneration",
    "Qwen3-VL": "Qwen3VLForConditionalGeneration",
    "Qwen3.5": "Qwen3_5ForConditionalGeneration",
    "google/gemma": "Gemma4ForConditionalGeneration",
}
"""vLLM's class of the models that see images, by a part of their names."""


def scripts_of(checkout: Path) -> list[dict[str, Any]]:
    """What each script asks of its trainer, as far as its source says."""
    folder = checkout / "examples" / "scripts"
    found = (_script(folder, file) for file in sorted(folder.rglob("*.py")))
    return [one for one in found if one is not None]


def _script(folder: Path, file: Path) -> dict[str, Any] | None:
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in TRAINERS:
            given = {one.arg for one in node.keywords}
            return {
                "script": file.relative_to(folder).as_posix(),
                "trainer": node.func.id,
                "tools": "tools" in given,
                "environments": "environment_factory" in given,
                "harness": "HarnessRolloutWorker(" in text,
                "own_engine": "use_transformers_continuous_batching = True" in text,
                "images": _seeing(text),
            }
    return None


def _seeing(text: str) -> str:
    """The class of the model that a script with images names first; empty without images."""
    if not re.search(r'"type": "image"|[-_]VL|"image"|Qwen3\.5|vlm', text):
        return ""
    places = {text.find(name): kind for name, kind in CLASSES.items() if name in text}
    return places[min(places)] if places else "a model of its command's"


def verdict(script: Mapping[str, Any]) -> tuple[str, str]:
    """Whether tandem accepts what a script asks for, and by which line or why not."""
    from tandem_plugin import TandemConfig
    from tandem_plugin.engine.unsupported import IMAGE_FAMILIES
    from tandem_plugin.errors import ConfigError
    from tandem_trl.start import GRPOSettings

    images = bool(script["images"])
    if images and script["images"] not in IMAGE_FAMILIES:
        return "no", "its model sees images, and its class was not compared"
    if script["harness"]:
        return "no", "`HarnessRolloutWorker` runs turns on threads that do not know their row"
    if script["trainer"] == "AsyncGRPOTrainer":
        return "yes", "`rollout_worker=TandemRolloutWorker(...)`"
    from trl import GRPOTrainer

    args = SimpleNamespace(
        use_vllm=not script["own_engine"],
        vllm_mode="colocate",
        vllm_tensor_parallel_size=1,
        world_size=1,
        loss_type="dapo",
    )
    tools = [print] if script["tools"] or script["environments"] else []
    try:
        GRPOSettings.of(args, {}, None, GRPOTrainer, tools).start(TandemConfig(images=images))
    except ConfigError as error:
        return "no", error.message.rstrip(".").split(": ")[-1]
    return "yes", f"`rollout_func=tandem_rollouts({'images=True, ' * images}...)`"


def table() -> str:
    """The table, with a line that counts."""
    rows = [(one, *verdict(one)) for one in json.loads(FILE.read_text(encoding="utf-8"))]
    count = sum(answer == "yes" for _, answer, _ in rows)
    lines = [
        f"{count} of {len(rows)} can be trained in tandem:\n",
        "| Script | Uses | In tandem | By, or why not |",
        "|---|---|---|---|",
        *(f"| `{one['script']}` | {_asks(one)} | {answer} | {why} |" for one, answer, why in rows),
    ]
    return "\n".join(lines) + "\n"


def _asks(script: Mapping[str, Any]) -> str:
    names: Iterator[str] = (
        name
        for key, name in (
            ("tools", "tools"),
            ("environments", "environments"),
            ("images", "images"),
            ("own_engine", "generation without vLLM"),
        )
        if script[key]
    )
    own = ["asynchronous"] if script["trainer"] == "AsyncGRPOTrainer" else []
    return ", ".join([*own, *names]) or "prompts alone"


def page() -> str:
    """docs/trl.md with its table."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        FILE.write_text(json.dumps(scripts_of(Path(sys.argv[1])), indent=1) + "\n")
    PAGE.write_text(page(), encoding="utf-8")
