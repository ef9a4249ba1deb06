"""Test hook: the adapter takes the junior's tokens for the senior's and the other way round."""

import dataclasses
from typing import Any

from tandem_plugin.training import trajectory

_author_response = trajectory.author_response


def _complement(*arguments: Any) -> Any:
    authored = _author_response(*arguments)
    return dataclasses.replace(authored, senior=~authored.senior)


trajectory.author_response = _complement
