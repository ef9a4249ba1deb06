"""What one request says about tandem, as it travels in ``SamplingParams.extra_args["tandem"]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem_plugin.draws import check_seed
from tandem_plugin.errors import RequestError

__all__ = ["OFF", "TandemRequest"]

OFF = "off"
"""Says that the senior answers alone; also ``{"schedule": "off"}``."""


@dataclass(frozen=True, slots=True)
class TandemRequest:
    """A request's tandem seed and, where they differ from the engine's, schedule and parameters.

    The wire form is one flat mapping: ``{"seed": 7}``, or ``{"seed": 7, "schedule": "word",
    "p": 0.3, "fingerprint": "..."}``. The fingerprint, where there is one, must be the engine's.
    """

    seed: int
    schedule: str | None
    parameters: Mapping[str, Any]
    fingerprint: str | None

    @classmethod
    def parse(cls, value: object) -> TandemRequest | None:
        """Read the wire form; None means that the senior answers alone.

        Raises :class:`RequestError` for anything else.
        """
        if value is None or value == OFF:
            return None
        if not isinstance(value, Mapping):
            raise RequestError(
                f"tandem={value!r} is not a request: give {{'seed': 7}}, with schedule and "
                f"parameters where they differ from the engine's, or {OFF!r}."
            )
        fields = dict(value)
        schedule = fields.pop("schedule", None)
        if schedule == OFF:
            return None
        if schedule is not None and not isinstance(schedule, str):
            raise RequestError(f"schedule={schedule!r} is not the name of a schedule.")
        fingerprint = fields.pop("fingerprint", None)
        if fingerprint is not None and not isinstance(fingerprint, str):
            raise RequestError(
                f"fingerprint={fingerprint!r} is not a string of hexadecimal digits."
            )
        if "seed" not in fields:
            raise RequestError(
                "The request asks for tandem without a seed. Give tandem={'seed': ...}: its "
                "authorship could not be replayed otherwise."
            )
        return cls(check_seed(fields.pop("seed")), schedule, fields, fingerprint)

    def to_wire(self) -> dict[str, Any]:
        """The mapping that :meth:`parse` reads back."""
        wire: dict[str, Any] = {"seed": self.seed}
        if self.schedule is not None:
            wire["schedule"] = self.schedule
        wire.update(self.parameters)
        if self.fingerprint is not None:
            wire["fingerprint"] = self.fingerprint
        return wire
