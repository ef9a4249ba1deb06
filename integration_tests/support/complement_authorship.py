"""Test hook: the adapter takes the junior's tokens for the senior's and the other way round."""

import dataclasses
from typing import Any

from tandem_verl import agent_loop

_author_response = agent_loop.author_response


def _complement(*arguments: Any) -> Any:
    authored = _author_response(*arguments)
    return dataclasses.replace(authored, senior=~authored.senior)


agent_loop.author_response = _complement
