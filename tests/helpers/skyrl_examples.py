"""Which of SkyRL's example scripts run in tandem: ``python skyrl_examples.py CHECKOUT``.

CHECKOUT is SkyRL's folder ``examples``. Each script runs with stand-ins for Python and the commands
around it, which write its settings down. They are read by the installed SkyRL, and checked as
tandem's command does. Settings of a class of the script's own, which ``main(MyExp, config=...)``
reads, are left out and counted. Prints each launch and the sums.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

STAND_INS = ("python", "python3", "uv", "ray", "pip", "nvidia-smi", "sleep", "huggingface-cli",
             "hf", "wget", "curl", "git", "sudo")  # fmt: skip
RECORDING = r"""#!/bin/bash
case "$*" in *"-m "*) printf '%s\0' "$@" >> "$RECORD"; printf '\1' >> "$RECORD" ;; esac
exit 0
"""


def launches(checkout: Path, scratch: Path) -> Iterator[tuple[str, list[str]]]:
    """Each script that trains, and the settings of its last launch."""
    commands = scratch / "bin"
    commands.mkdir()
    for name in STAND_INS:
        (commands / name).write_text(RECORDING)
        (commands / name).chmod(0o755)
    for script in sorted(checkout.rglob("*.sh")):
        record = scratch / "record"
        record.unlink(missing_ok=True)
        path = f"{commands}{os.pathsep}/usr/bin{os.pathsep}/bin"
        own = {"HOME": str(scratch), "RECORD": str(record), "DATA_DIR": "/data"}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["bash", str(script)],
                cwd=checkout.parent,
                env={"PATH": path, "WANDB_API_KEY": "none", **own},
                capture_output=True,
                timeout=10,
                check=False,
            )
        if not record.exists():
            continue
        words = [launch.split("\0") for launch in record.read_text().split("\1")]
        mains = [(one[one.index("-m") + 1], one[one.index("-m") + 2 :]) for one in words
                 if "-m" in one]  # fmt: skip
        mains = [(module, own) for module, own in mains if re.search("main|entry|train", module)]
        if not mains or re.search("sft|tinker", mains[-1][0]):
            continue
        settings = [word.lstrip("+") for word in mains[-1][1] if "=" in word]
        if any(setting.startswith("trainer.") for setting in settings):
            yield str(script.relative_to(checkout)), settings


def read(settings: list[str]) -> tuple[Any, int]:
    """SkyRL's configuration of these settings, and how many it does not know."""
    from skyrl.train.config import SkyRLTrainConfig

    left = list(settings)
    while True:
        try:
            return SkyRLTrainConfig.from_cli_overrides(left), len(settings) - len(left)
        except Exception as error:
            unknown = re.findall(r"'([\w.]+)'", str(error))
            kept = [one for one in left if one.split("=")[0].rsplit(".", 1)[-1] not in unknown]
            if len(kept) == len(left):
                kept = [one for one in left if not {*one.split("=")[0].split(".")} & {*unknown}]
            if len(kept) == len(left):
                raise
            left = kept


def verdict(settings: list[str]) -> str:
    """Whether a launch runs, or the code and the setting with which tandem's command rejects it."""
    from tandem_plugin.config import TandemConfig
    from tandem_plugin.errors import TandemError
    from tandem_skyrl.start import SkyRLSettings

    try:
        cfg, unknown = read(settings)
    except Exception as error:
        return f"SkyRL: {type(error).__name__}"
    cfg.trainer.policy.model.path = "organisation/model"
    try:
        SkyRLSettings.of(cfg).start(TandemConfig())
    except TandemError as error:
        return f"{error.code} {error.fields.get('setting', '')}"
    return "runs, with a class of settings of its own" if unknown else "runs"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        every = launches(Path(sys.argv[1]).resolve(), Path(folder))
        found = {script: verdict(settings) for script, settings in every}
    for script, said in found.items():
        print(f"{script:90s} {said}")
    for said, count in Counter(found.values()).most_common():
        print(f"{count:4d} {said}")
