"""Handing over by text, as the paper's release evaluates teams.

In turns, each model writes until its text has a blank line; what follows that line in the turn's
last token is dropped, and the whole text is tokenised again for the other one. The senior begins.
A response ends where a model ends its turn by itself, at its budget of tokens, or after so many
rounds of both. Source: eval/handoff.py of CSSLab/Tandem-RLVR at 7ba85e0f.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tandem_plugin.lab.evaluation.generation import Sampling
from tandem_plugin.seeds import derive_seed

__all__ = ["BLANK_LINE", "Chain", "TextHandoff"]

BLANK_LINE = "\n\n"
_AUTHORS = ("solo", "junior")
"""The schedules of a turn of the senior, and of one of the junior."""

Key = TypeVar("Key")


@dataclass(slots=True)
class Chain(Generic[Key]):
    """One response on its way."""

    key: Key
    question: Mapping[str, Any]
    """The messages, and the golds."""
    prompt: str
    seeds: tuple[int, int]
    """What the seeds of its turns' sampling derive from, and its tandem seed."""
    rounds: int
    text: str = ""
    ids: list[int] = field(default_factory=list)
    """What was written, also what was dropped of it: not what ``text`` is tokenised to."""
    stops: list[int] = field(default_factory=list)
    """Where each turn ends in ``ids``."""
    fingerprint: str | None = None

    def take(self, completion: Any, budget: int) -> str | None:
        """Append a turn; returns why the response ends with it, or None."""
        self.text += completion.text
        self.ids += completion.token_ids
        self.stops.append(len(self.ids))
        self.fingerprint = self.fingerprint or completion.tandem_fingerprint
        if len(self.ids) >= budget or completion.finish_reason == "length":
            return "length"
        if completion.stop_reason != BLANK_LINE:
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
            "authorship": [
                1 - turn % 2
                for turn, (start, stop) in enumerate(zip(starts, self.stops, strict=True))
                for _ in range(start, stop)
            ],
            "tandem_seed": seed,
            "tandem_fingerprint": self.fingerprint,
            "tandem_schedule": {"schedule": _AUTHORS[0]},
            "tandem_segments": [[seed, *ends] for ends in zip(starts, self.stops, strict=True)],
            "tandem_segment_schedules": [
                {"schedule": _AUTHORS[turn % 2]} for turn in range(len(self.stops))
            ],
        }


class TextHandoff:
    """The loop of turns, over one engine that holds both models.

    engine: a :class:`TandemLLM`. most: how many requests it may have at a time.
    """

    def __init__(self, engine: Any, sampling: Sampling, most: int) -> None:
        self._engine = engine
        self._tokenizer = engine.get_tokenizer()
        self._longest = int(engine.llm_engine.model_config.max_model_len)
        self._sampling = sampling
        self._most = most

    def chain(
        self, key: Key, question: Mapping[str, Any], seeds: tuple[int, int], rounds: int
    ) -> Chain[Key]:
        """A response that has not begun."""
        turns: Sequence[Mapping[str, str]] = question["messages"]
        if getattr(self._tokenizer, "chat_template", None):
            prompt = self._tokenizer.apply_chat_template(
                list(turns), tokenize=False, add_generation_prompt=True
            )
        else:
            prompt = BLANK_LINE.join(turn["content"] for turn in turns)
        return Chain(key, question, prompt, seeds, rounds)

    def rows(self, chains: Sequence[Chain[Key]]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """The rows of the responses, as they are finished."""
        ready = _Ready(chains)
        for chain, output in self._engine.stream(map(self._request, ready), self._most):
            (completion,) = output.outputs
            ended = chain.take(completion, self._sampling.max_tokens)
            if ended is None and len(self._ids(chain.prompt + chain.text)) >= self._longest:
                ended = "length"
            if ended is None:
                ready.waiting.appendleft(chain)
            else:
                yield chain.key, chain.row(ended, self._ids(chain.prompt))

    def _request(self, chain: Chain[Key]) -> tuple[Chain[Key], Any, Any, Any]:
        from vllm import SamplingParams

        ids = self._ids(chain.prompt + chain.text)
        left = self._sampling.max_tokens - len(chain.ids)
        params = SamplingParams(
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k or 0,
            max_tokens=min(left, self._longest - len(ids)),
            seed=derive_seed(chain.seeds[0], "turn", len(chain.stops)),
            stop=[BLANK_LINE],
            include_stop_str_in_output=True,
        )
        tandem = {"schedule": _AUTHORS[len(chain.stops) % 2], "seed": chain.seeds[1]}
        return chain, {"prompt_token_ids": ids}, params, tandem

    def _ids(self, text: str) -> list[int]:
        special = not getattr(self._tokenizer, "chat_template", None)  # a template has its own
        return list(self._tokenizer.encode(text, add_special_tokens=special))


class _Ready(Iterator[Chain[Key]]):
    """What waits for its next turn: empty while all are in the engine, and filled again."""

    def __init__(self, chains: Sequence[Chain[Key]]) -> None:
        self.waiting = deque(chains)

    def __next__(self) -> Chain[Key]:
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()
