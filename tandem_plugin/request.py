"""The tandem parameters of one request, sent in ``SamplingParams.extra_args["tandem"]``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from operator import eq
from typing import Any

from tandem_plugin._draws import check_seed
from tandem_plugin.errors import RequestError
from tandem_plugin.files import parse_json

OFF = "off"
"""Means that the senior answers alone; also ``{"schedule": "off"}``."""

MAX_WIRE_LENGTH = 4096
"""The maximum length of a request's text, in characters."""


MAX_PROMPT_LENGTH = 2**31 - 1
"""The maximum prompt length in a request, in tokens."""


def resembles_tandem(name: str) -> bool:
    """Whether a name, or a word in it, is tandem or nearly: ``Tandem_seed``, ``x-tadnem``.

    Letters of other alphabets that look alike are one wrong letter each.
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return any(map(_resembles, {plain, *re.split(r"[\W_]+", plain)}))


def _resembles(plain: str) -> bool:
    parts = (plain[i : i + 6] for i in range(len(plain) - 5))
    return (
        any(sum(map(eq, part, "tandem")) >= 5 for part in parts)
        or SequenceMatcher(None, plain, "tandem").ratio() >= 0.8
    )


@dataclass(frozen=True, slots=True)
class TandemRequest:
    """A request's tandem seed and, if they differ from the engine's, its schedule and parameters.

    The wire form is one flat mapping: ``{"seed": 7}``, or ``{"seed": 7, "schedule": "word", "p":
    0.3, "fingerprint": "..."}``. The fingerprint, if given, must be the engine's. The same mapping
    as a JSON string is accepted too, since vLLM does not let HTTP clients send mappings.

    ``prompt_length`` lets a client continue a truncated response: it is how many of the tokens
    sent as the prompt belong to the original prompt; the rest are the beginning of the response,
    under the same seed.
    """

    seed: int
    schedule: str | None
    parameters: Mapping[str, Any]
    fingerprint: str | None
    prompt_length: int | None = None

    @classmethod
    def parse(cls, value: object) -> TandemRequest | None:
        """Parse the wire form; None means that the senior answers alone.

        Raises :class:`RequestError` for anything else.
        """
        if value is None or (isinstance(value, str) and value == OFF):
            return None
        fields = dict(_mapping(value))
        schedule = fields.pop("schedule", None)
        if schedule is not None and (not isinstance(schedule, str) or not schedule.strip()):
            raise RequestError("request-schedule-not-name", schedule=schedule)
        fingerprint = fields.pop("fingerprint", None)
        if fingerprint is not None and not isinstance(fingerprint, str):
            raise RequestError("request-fingerprint-not-hex", fingerprint=fingerprint)
        if "seed" not in fields and schedule != OFF:
            raise RequestError("request-without-seed")
        prompt_length = _check_length(fields.pop("prompt_length", None))
        seed = check_seed(fields.pop("seed", 0))
        if schedule == OFF:
            if fields:
                raise RequestError("request-off-with-parameters", name=min(fields))
            return None
        return cls(seed, schedule, fields, fingerprint, prompt_length)

    def to_wire(self) -> dict[str, Any]:
        """The mapping that :meth:`parse` accepts, also as JSON, as vLLM's ``vllm_xargs`` has it."""
        wire: dict[str, Any] = {"seed": self.seed}
        if self.schedule is not None:
            wire["schedule"] = self.schedule
        wire.update(self.parameters)
        if self.prompt_length is not None:
            wire["prompt_length"] = self.prompt_length
        if self.fingerprint is not None:
            wire["fingerprint"] = self.fingerprint
        return wire


def _check_length(value: object) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= MAX_PROMPT_LENGTH):
        return value
    raise RequestError("prompt-length-not-count", value=value, largest=MAX_PROMPT_LENGTH)


def _mapping(value: object) -> Mapping[str, Any]:
    """The wire form as a mapping, from itself or from JSON."""
    if isinstance(value, str):
        if len(value) > MAX_WIRE_LENGTH:
            raise RequestError(
                "request-tandem-too-long", length=len(value), longest=MAX_WIRE_LENGTH
            )
        try:
            value = parse_json(value)
        except ValueError as error:
            raise RequestError("request-tandem-not-json", text=value, error=error) from error
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise RequestError("request-tandem-invalid", value=value)
