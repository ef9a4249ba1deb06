"""OpenRLHF's settings in a command's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any


def flags_of_command(
    arguments: Sequence[str], flags: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Some of a trainer's own flags, and ``--help``; flags: the trainer's options of each."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    for flag, options in flags.items():
        parser.add_argument(flag, **options)
    read, _ = parser.parse_known_args(list(arguments))
    return {f"--{name}": value for name, value in vars(read).items()}
