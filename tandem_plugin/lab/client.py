"""The client of a tandem server: what to send with a request, and who wrote the response.

It needs the tokenizer and the settings that the server was started with, but neither vllm nor
torch. Each request carries the fingerprint of the client's rules, and a server with other settings
rejects it. Each response carries the request as the engine applied it; a response without it, or
with another one, is rejected, since a proxy that drops the field would return the senior's response
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tandem_plugin.authorship import Authorship
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError, RequestError
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import sample_seed

__all__ = ["AuthorshipReader", "ServerRequest"]


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request to a tandem server, and the reading of its response."""

    rule: Rule
    seed: int
    prompt_length: int | None = None
    """The prompt's length in tokens, where a response that began goes on; else None."""
    prefix: tuple[int, ...] = ()
    """How that response began."""

    def resume(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> ServerRequest:
        """The request that continues a truncated response.

        prompt_ids: the tokens of the prompt. token_ids: all tokens of the response so far. Send
        both, one after the other, as the prompt of a completion with this request's :meth:`fields`;
        it then reads only the rest.
        """
        return replace(self, prompt_length=len(prompt_ids), prefix=tuple(token_ids))

    @property
    def _length_sent(self) -> int:
        return (self.prompt_length or 0) + len(self.prefix)

    def fields(self) -> dict[str, Any]:
        """The fields to add to the body of a completion or chat completion.

        With the openai client, pass them as ``extra_body``.
        """
        text = self.rule.request(self.seed, self.prompt_length).to_json()
        return {"vllm_xargs": {"tandem": text}, "return_token_ids": True}

    def read(self, response: Any, n: int | None = None) -> list[Authorship]:
        """The authorship of each choice of a response, by the choice's index.

        response: the body as a mapping, or an object of the openai client. n: the samples per
        prompt, for a body with several prompts; without it, all choices are samples of one prompt.
        Raises :class:`AuthorshipError` if the response does not contain all of its token ids, or
        was written for another request: each choice states the request that the engine applied.
        """
        return self.read_stream([response], n)

    def read_stream(self, chunks: Iterable[Any], n: int | None = None) -> list[Authorship]:
        """The authorship of each choice of a streamed response; see :meth:`read`.

        chunks: the events of the stream, each as a mapping or an object of the openai client.
        """
        token_ids: dict[int, list[int]] = {}
        written_for: dict[int, Any] = {}
        counted: int | None = None
        sent: int | None = None
        for chunk in map(_mapping, chunks):
            if chunk.get("error"):
                raise RequestError("TP004", message=_message(chunk["error"]))
            for choice in chunk.get("choices") or ():
                token_ids.setdefault(choice["index"], []).extend(_token_ids(choice))
                if choice.get("tandem") is not None:
                    written_for[choice["index"]] = choice["tandem"]
            usage = chunk.get("usage") or {}
            counted = usage.get("completion_tokens", counted)
            sent = usage.get("prompt_tokens", sent)
        if sorted(token_ids) != list(range(len(token_ids))) or not token_ids:
            raise AuthorshipError("TP005", choices=sorted(token_ids))
        received = sum(map(len, token_ids.values()))
        if counted is not None and counted != received:
            raise AuthorshipError("TP006", counted=counted, received=received)
        if self.prefix and len(token_ids) > 1:
            raise AuthorshipError("TP007", choices=len(token_ids))
        if self.prompt_length is not None and sent not in (None, self._length_sent):
            raise AuthorshipError("TP008", sent=sent, length_sent=self._length_sent)
        samples = n or len(token_ids)
        seeds = [sample_seed(self.seed, i % samples) for i in range(len(token_ids))]
        for i, seed in enumerate(seeds):
            self._check(i, seed, written_for.get(i))
        return [
            self.rule.replay_rest(self.prefix, token_ids[i], seed) for i, seed in enumerate(seeds)
        ]

    def _check(self, index: int, seed: int, written_for: object) -> None:
        """Raise :class:`AuthorshipError` for a choice that the engine wrote for another request."""
        if not isinstance(written_for, Mapping):
            raise AuthorshipError("TP009", index=index)
        own = {
            "seed": seed,
            "fingerprint": self.rule.fingerprint,
            "prompt_length": self.prompt_length,
        }
        for name, value in own.items():
            if (found := written_for.get(name)) != value:
                raise AuthorshipError("TP010", index=index, name=name, found=found, value=value)


class AuthorshipReader:
    """Reads the authorship of one server's responses.

    Raises :class:`ConfigError` for invalid settings, :class:`TokenizerError` for an incompatible
    tokenizer.
    """

    def __init__(self, rules: TandemRules) -> None:
        self._rules = rules

    @classmethod
    def from_tokenizer(
        cls, tokenizer: str | Path, settings: Mapping[str, Any] | None = None
    ) -> AuthorshipReader:
        """A reader for the server's tokenizer and its tandem settings.

        tokenizer: a folder, a name, or a tokenizer.json, as for :meth:`Vocabulary.from_path`.
        settings: the mapping that the server was started with, or the part about the schedule.
        """
        config = TandemConfig.from_mapping(settings or {})
        return cls(TandemRules(config, Vocabulary.from_path(tokenizer)))

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the server's own rule, as the server logs it at startup."""
        return self._rules.fingerprint

    def request(self, seed: int, **changes: Any) -> ServerRequest:
        """A request with this tandem seed.

        changes: a schedule and parameters, if they differ from the server's. Raises
        :class:`RequestError` if the rules cannot honour it.
        """
        if "prompt_length" in changes:
            raise RequestError("TP011")
        resolved = self._rules.for_request({"seed": seed, **changes})
        if resolved is None:
            raise RequestError("TP012")
        return ServerRequest(resolved.rule, resolved.seed)


def _mapping(value: Any) -> Mapping[str, Any]:
    """A body or chunk as a mapping; the openai client's objects can give themselves as one."""
    if not isinstance(value, Mapping) and hasattr(value, "model_dump"):
        value = value.model_dump()
    if not isinstance(value, Mapping):
        raise AuthorshipError("TP013", kind=type(value))
    return value


def _token_ids(choice: Mapping[str, Any]) -> list[int]:
    token_ids = choice.get("token_ids")
    if token_ids is None:
        delta = choice.get("delta")
        if isinstance(delta, Mapping) and not any(v for k, v in delta.items() if k != "role"):
            return []  # the event that opens a chat says the role alone
        raise AuthorshipError("TP014")
    return list(token_ids)


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, Mapping) else error)
