"""Which of verl's example scripts run in tandem: ``python verl_examples.py CHECKOUT``.

CHECKOUT is a folder with verl's ``examples``. Each script runs with stand-ins for Python and the
commands around it, which write its overrides down. They are composed by the installed verl, with
tandem's flag, and tandem checks them as its driver does. Prints the table of docs/verl.md: of each
kind of model the scripts that run, and why the others do not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FLAG = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.tandem.schedule=word"
STAND_INS = ("python", "python3", "uv", "ray", "pip", "pip3", "torchrun", "nvidia-smi", "npu-smi",
             "sleep", "huggingface-cli", "hf", "wget", "curl", "git", "sudo", "ulimit")  # fmt: skip
RECORDING = r"""#!/bin/bash
case "$*" in *"-m verl.trainer.main_ppo"*) printf '%s\0' "$@" >> "$RECORD" ;; esac
for one in "$@"; do [ "$one" = "-c" ] && exit 1; done
exit 0
"""

KINDS = {
    "image, video and audio": (
        r"VL\b|VL-|(?<![Vv]e)[Oo]mni|Kimi-K2\.5|InternVL|Janus|_vl_|video|MiniCPM-o|4\.1V"
    ),
    "hybrid": r"Qwen3[._]5|Qwen3\.6|Qwen3-Next|qwen3_next|Nemotron-3|Nemotron-Nano",
    "mixture of experts": (
        r"A\d+B|a\d+b|MoE|moe|Mixtral|[Dd]eep[Ss]eek|GLM-[45]|gpt-oss|[Kk]imi|Hy3"
    ),
}
"""Kinds of models by their names, the first that matches; all others are dense text models."""

CLASSES = {
    "Qwen2_5_VLForConditionalGeneration": r"Qwen2[._]5-VL",
    "Qwen3VLForConditionalGeneration": r"Qwen3-VL(?!.*A\d+B)",
    "Qwen3_5ForConditionalGeneration": r"Qwen3[._]5-(?!.*A\d+B)",
}
"""vLLM's classes of dense models that see images, by the names of their checkpoints."""

IMAGES = r"geo3k|geometry3k|openr1mm|vision|mathvista|clevr|mmmu|[Oo]mni|_vl\b|image"
VIDEOS = r"video"
"""Data sets whose prompts have images or videos, by the names of their files and folders."""

ASCEND = r"ascend|npu"
"""Scripts for Ascend by their paths: verl itself sets ``trainer.device=npu`` on such a machine."""


@dataclass(frozen=True)
class Example:
    """A script's launch of trainer V1. why: the reason for which it does not run; or empty."""

    script: str
    kind: str
    why: str
    images: bool = False
    """Whether it runs with ``images: true``, or would."""


def launches(checkout: Path, scratch: Path) -> Iterator[tuple[str, list[str]]]:
    """Each script that launches ``main_ppo``, and the arguments of its last launch."""
    commands = scratch / "bin"
    commands.mkdir()
    for name in STAND_INS:
        (commands / name).write_text(RECORDING)
        (commands / name).chmod(0o755)
    for script in sorted((checkout / "examples").rglob("*.sh")):
        record = scratch / "record"
        record.unlink(missing_ok=True)
        with_path = f"{commands}{os.pathsep}/usr/bin{os.pathsep}/bin"
        environment = {"PATH": with_path, "HOME": str(scratch), "RECORD": str(record)}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["bash", script.name],
                cwd=script.parent,
                env=environment,
                capture_output=True,
                timeout=20,
                check=False,
            )
        if record.exists():
            said = record.read_text().split("\0")[:-1]
            starts = [at for at, word in enumerate(said) if word == "verl.trainer.main_ppo"]
            if starts:
                yield str(script.relative_to(checkout)), said[starts[-1] + 1 :]


@cache
def base(name: str, engine: str) -> Any:
    """verl's configuration of an engine, before anything is overridden."""
    import verl
    from hydra import compose, initialize_config_dir

    folder = str(Path(str(verl.__file__)).parent / "trainer" / "config")
    with initialize_config_dir(folder, version_base=None):
        return compose(name, overrides=[f"model_engine={engine}"] if engine else [])


def composed(arguments: list[str]) -> Any:
    """verl's configuration of these arguments, as the installed verl has it, with tandem's flag."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    given = [one for one in arguments if "=" in one and not one.startswith(("--", "hydra."))]
    named = [one.partition("=")[2] for one in arguments if one.startswith("--config-name")]
    engines = [one.partition("=")[2] for one in given if one.startswith("model_engine=")]
    name = (named or ["ppo_trainer"])[0].strip("'\"").removesuffix(".yaml")
    config = base(name, (engines or [""])[-1]).copy()
    OmegaConf.set_struct(config, False)
    for override in OverridesParser.create().parse_overrides([*given, FLAG]):
        if override.is_delete() or override.key_or_group == "model_engine":
            continue
        OmegaConf.update(config, override.key_or_group, override.value(), force_add=True)
    return config


def reason(config: Any, images: bool) -> str:
    """Why tandem's driver rejects a configuration; empty if it accepts it.

    images: whether its prompts have images, which tandem's setting of that name allows.
    """
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import TandemError
    from tandem_verl.start import VerlRun

    tandem = TandemConfig.from_mapping({"schedule": "word", "images": images})
    try:
        VerlRun.of(config).start(tandem)
    except TandemError as error:
        return re.split(r" was not| does not| without|: |\. ", str(error))[0]
    return ""


def has(kinds: str, config: Any) -> bool:
    """Whether a script's data sets are of some kinds.

    They are not here, so ``check_prompts`` cannot read them: they are known by their names.
    """
    files = " ".join(map(str, (config.data.train_files, config.data.val_files)))
    names = re.findall(r"[^/\s'\",]+/[^/\s'\",]+(?=['\",\]\s]|$)", files)
    return re.search(kinds, " ".join(names)) is not None


def unseen(config: Any) -> str:
    """Why an engine in tandem does not see the images of a script's prompts; empty if it does."""
    from tandem_plugin.engine.unsupported import IMAGE_FAMILIES

    if has(VIDEOS, config):
        return "a prompt's video"
    name = str(config.actor_rollout_ref.model.path)
    classes = {kind for kind, names in CLASSES.items() if re.search(names, name)}
    if not classes & IMAGE_FAMILIES:
        return "the model"
    model = config.actor_rollout_ref.model
    sees = not re.fullmatch(str(model.get("exclude_modules")), "model.visual.merger.mlp.0")
    return "an adapter of the tower" if model.get("lora_rank") and sees else ""


def examined(checkout: Path) -> list[Example]:
    """Every script that trains by trainer V1 with vLLM, one launch each."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for script, arguments in launches(checkout, Path(scratch)):
            try:
                config = composed(arguments)
            except Exception as error:
                found.append(Example(script, "", f"verl: {type(error).__name__}"))
                continue
            text = f"{config.actor_rollout_ref.model.path} {Path(script).name}"
            kinds = (kind for kind, names in KINDS.items() if re.search(names, text))
            kind = next(kinds, "dense text")
            if re.search(ASCEND, script):
                config.trainer.device = "npu"
            # A group of settings that is not verl's, such as another package's engine.
            foreign = next((one for one in arguments if "@" in one.partition("=")[0]), "")
            key = any(one.startswith("data.image_key=") for one in arguments)
            images = key or has(IMAGES, config) or has(VIDEOS, config)
            why = foreign or reason(config, images) or (unseen(config) if images else "")
            found.append(Example(script, kind, why, images))
    return found


def table(examples: list[Example]) -> str:
    """The lines of docs/verl.md."""
    lines = [
        "| Models | Scripts | Run in tandem | of these with `images: true` | The others |",
        "|---|---|---|---|---|",
    ]
    for kind in ("dense text", *reversed(KINDS)):
        own = [one for one in examples if one.kind == kind]
        others = Counter(one.why for one in own if one.why)
        why = "; ".join(f"{count} `{said}`" for said, count in others.most_common())
        seen = sum(one.images and not one.why for one in own)
        lines.append(f"| {kind} | {len(own)} | {len(own) - others.total()} | {seen} | {why} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if shutil.which("bash") is None:
        sys.exit("This needs bash.")
    every = examined(Path(sys.argv[1]).resolve())
    print(table(every))
    for example in every:
        runs = "runs with images" if example.images else "runs"
        print(f"{example.script:70s} {example.kind:20s} {example.why or runs}", file=sys.stderr)
