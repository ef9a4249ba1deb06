"""Test hook: the adapter replays every response one token late."""

import dataclasses
from typing import Any

import numpy as np

from tandem_verl import agent_loop

_author_response = agent_loop.author_response


def _shifted(*arguments: Any) -> Any:
    authored = _author_response(*arguments)
    return dataclasses.replace(authored, senior=np.roll(authored.senior, 1))


agent_loop.author_response = _shifted
