"""The ``verl.plugins`` entry point: verl imports this module in every one of its processes.

verl logs a plugin's import error at debug level and goes on without it. A run that asked for
tandem would then train as if it had not, so nothing imported here can fail, and when the adapter
cannot be put in place it leaves a refusal instead.
"""

from __future__ import annotations

from tandem_verl.refusing import refuse

__all__ = ["activate"]


def activate() -> None:
    """Put the adapter in place, or leave a refusal; never raises."""
    try:
        from tandem_verl import entry

        entry.put_in_place()
    except Exception as error:
        refuse(error)


activate()
