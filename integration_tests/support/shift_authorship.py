"""Test hook: the adapter replays every response one token late."""

import dataclasses
from typing import Any

import numpy as np

from tandem_plugin.training import trajectory

_author_response = trajectory.author_response


def _shifted(*arguments: Any) -> Any:
    authored = _author_response(*arguments)
    return dataclasses.replace(authored, senior=np.roll(authored.senior, 1))


trajectory.author_response = _shifted
