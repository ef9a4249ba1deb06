"""OpenRLHF's arguments, as far as tandem checks them before OpenRLHF itself reads them.

Its parser is inside its command and cannot be asked. What is read here is checked once more in the
trainer's process, of OpenRLHF's own arguments (:func:`tandem_openrlhf.refusals.check_run`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["CHECKED", "checked_arguments"]

CHECKED: dict[str, dict[str, Any]] = {
    "--actor.model_name_or_path": {"type": str, "default": None},
    "--actor.policy_loss_type": {"type": str, "default": "ppo"},
    "--algo.advantage.estimator": {"type": str, "default": "gae"},
    "--algo.advantage.gamma": {"type": float, "default": 1},
    "--algo.kl.target": {"type": float, "default": None},
    "--data.max_images_per_prompt": {"type": int, "default": 0},
    "--ds.lora.rank": {"type": int, "default": 0},
    "--train.async_enable": {"action": "store_true", "default": False},
    "--vllm.num_engines": {"type": int, "default": None},
}
"""The flags that are checked, each with OpenRLHF's type and default; a test compares them."""


def checked_arguments(arguments: Sequence[str]) -> Any:
    """The checked arguments in OpenRLHF's form (``args.algo.advantage.estimator``), and ``help``.

    arguments: the command line without tandem's own flags.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    for flag, options in CHECKED.items():
        parser.add_argument(flag, **options)
    flat, _ = parser.parse_known_args(list(arguments))
    root = SimpleNamespace()
    for name, value in vars(flat).items():
        *parents, last = name.split(".")
        node = root
        for parent in parents:
            vars(node).setdefault(parent, SimpleNamespace())
            node = getattr(node, parent)
        setattr(node, last, value)
    return root
