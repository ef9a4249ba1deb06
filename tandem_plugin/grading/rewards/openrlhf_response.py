r"""The response in the text that OpenRLHF's reward function gets: prompt and response, decoded.

Decoding is not the inverse of encoding: special tokens eat blanks, normalisers change characters,
unknown ones are lost, and a long prompt is cut off at its left. A run in tandem knows which tokens
are the response (:data:`GENERATED`). Elsewhere the text must begin with the prompt as it was sent:
what a prompt says about ``\boxed`` is never taken for a response.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_END = re.compile(
    r"(?:\s*(?:</s>|<eos>|<pad>|<end_of_turn>|<\|\w{1,40}\|>|<\uff5c[\w\u2581]{1,40}\uff5c>"
    r"|\[(?:SEP|EOS|PAD)\]))+\s*\Z"
)
"""The special tokens that end a response, looked for in its last characters."""
_LAST = 400


@dataclass(slots=True)
class Generated:
    """The tokens of an engine's last call in one response, and the tokenizer that decodes them."""

    tokenizer: Any
    prompt_ids: Sequence[int] = ()
    response_ids: Sequence[int] = ()

    @classmethod
    def begin(cls, tokenizer: Any) -> None:
        """Know the tokens of this coroutine's task from now on."""
        GENERATED.set(cls(tokenizer))

    @staticmethod
    def returned(prompt_ids: Sequence[int], response_ids: Sequence[int]) -> None:
        """Note an engine's call; without :meth:`begin` before, nothing happens."""
        if (generated := GENERATED.get()) is not None:
            generated.prompt_ids, generated.response_ids = prompt_ids, response_ids

    def response_in(self, query: str) -> str | None:
        """The response, if a query is the text of this call; without special tokens."""
        token_ids = [*self.prompt_ids, *self.response_ids]
        if self.tokenizer.decode(token_ids, skip_special_tokens=False) != query:
            return None
        text: str = self.tokenizer.decode(list(self.response_ids), skip_special_tokens=True)
        return text


GENERATED: ContextVar[Generated | None] = ContextVar("GENERATED", default=None)
"""Set while OpenRLHF answers one prompt in tandem; its threads inherit it."""


def response_of(query: str, prompt: str) -> str | None:
    """The response in a query, or None for a query that does not begin with its prompt."""
    generated = GENERATED.get()
    if generated is not None and (response := generated.response_in(query)) is not None:
        return response
    if not query.startswith(prompt):
        return None
    last = max(len(prompt), len(query) - _LAST)
    return query[len(prompt) : last] + _END.sub("", query[last:])
