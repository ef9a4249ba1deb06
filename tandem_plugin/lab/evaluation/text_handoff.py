"""Handoff by text, as in the paper's release: each model in turn writes up to a blank line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tandem_plugin.lab.data.problem import Message, has_template, rendered
from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.seeds import derive_seed

_BLANK_LINE = "\n\n"
_AUTHORS = ("solo", "junior")
"""The schedules of a turn of the senior, and of one of the junior."""


@dataclass(slots=True)
class _Chain:
    """A response in progress."""

    key: Any
    question: Mapping[str, Any]
    """The messages, and the golds."""
    prompt: str
    seeds: tuple[int, int]
    """Its tandem seed, and the base of its turns' sampling seeds."""
    rounds: int
    budget: int
    """The most tokens of all turns together."""
    text: str = ""
    ids: list[int] = field(default_factory=list)
    """All generated tokens, including dropped ones; differs from ``text`` retokenised."""
    stops: list[int] = field(default_factory=list)
    """Where each turn ends in ``ids``."""
    authorship: list[int] = field(default_factory=list)
    fingerprint: str | None = None

    def take(self, completion: Any) -> str | None:
        """Append a turn; returns the reason if the response ends with it, otherwise None."""
        self.text += completion.text
        self.ids += completion.token_ids
        self.authorship += [1 - len(self.stops) % 2] * len(completion.token_ids)
        self.stops.append(len(self.ids))
        self.fingerprint = self.fingerprint or completion.tandem_fingerprint
        if len(self.ids) >= self.budget or completion.finish_reason == "length":
            return "length"
        if completion.stop_reason != _BLANK_LINE:
            return "stop"
        return "rounds" if len(self.stops) == 2 * self.rounds else None

    def row(self, finish_reason: str, prompt_ids: list[int]) -> dict[str, Any]:
        """The row of the finished response: each turn is a segment of it."""
        starts = [0, *self.stops[:-1]]
        seed = self.seeds[1]
        return {
            "prompt": self.question["messages"],
            "answer": self.question["golds"],
            "response": self.text,
            "finish_reason": finish_reason,
            "prompt_ids": prompt_ids,
            "response_ids": self.ids,
            "authorship": self.authorship,
            "tandem_seed": seed,
            "tandem_fingerprint": self.fingerprint,
            "tandem_schedule": {"schedule": _AUTHORS[0]},
            "tandem_segments": [[seed, *ends] for ends in zip(starts, self.stops, strict=True)],
            "tandem_segment_schedules": [
                {"schedule": _AUTHORS[turn % 2]} for turn in range(len(self.stops))
            ],
        }


class TextHandoff:
    """Handoff by text, as in the paper's release, on one engine with both models.

    In turns, each model writes until its text has a blank line. The rest of the turn's last token
    is dropped, and the whole text is retokenised for the other model. The senior begins. A response
    ends when a model ends it, at its token budget, or after a number of rounds. Source:
    eval/handoff.py of CSSLab/Tandem-RLVR at 7ba85e0f.

    engine: a :class:`TandemLLM`. most: the maximum number of concurrent requests. template_args:
    arguments of the chat template.
    """

    def __init__(
        self,
        engine: Any,
        sampling: Sampling,
        most: int,
        template_args: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._tokenizer = engine.get_tokenizer()
        self._template_args = template_args
        self._has_template = has_template(self._tokenizer, template_args)
        self._longest = int(engine.llm_engine.model_config.max_model_len)
        self._sampling = sampling
        self._most = most
        self._waiting: deque[_Chain] = deque()

    def add(
        self, key: Any, question: Mapping[str, Any], seeds: tuple[int, int], rounds: int
    ) -> None:
        """Add a response, to be yielded under ``key``."""
        turns: Sequence[Message] = question["messages"]
        if self._has_template:
            prompt = rendered(turns, self._tokenizer, self._template_args, tokenize=False)
        else:
            prompt = _BLANK_LINE.join(turn["content"] for turn in turns)
        budget = self._sampling.budget(len(self._ids(prompt)))
        self._waiting.append(_Chain(key, question, prompt, seeds, rounds, budget))

    def rows(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(key, row) of each response when it is finished."""
        for chain, output in self._engine.stream(self, self._most):
            (completion,) = output.outputs
            ended = chain.take(completion)
            if ended is None and len(self._ids(chain.prompt + chain.text)) >= self._longest:
                ended = "length"
            if ended is None:
                self._waiting.appendleft(chain)
            else:
                yield chain.key, chain.row(ended, self._ids(chain.prompt))

    def __iter__(self) -> TextHandoff:
        return self

    def __next__(self) -> tuple[_Chain, Any, Any, Any]:
        """The next turns; empty while all responses are in the engine."""
        if not self._waiting:
            raise StopIteration
        chain = self._waiting.popleft()
        ids = self._ids(chain.prompt + chain.text)
        turn = len(chain.stops)
        budget = min(chain.budget - len(chain.ids), self._longest - len(ids))
        seed = derive_seed(chain.seeds[0], "turn", turn)
        stops = {"stop": [_BLANK_LINE], "include_stop_str_in_output": True}
        params = self._sampling.parameters(seed, budget, **stops)
        tandem = {"schedule": _AUTHORS[turn % 2], "seed": chain.seeds[1]}
        return chain, {"prompt_token_ids": ids}, params, tandem

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=not self._has_template))
