"""``TandemLLM``: vLLM's own ``LLM``, whose responses record the author of each token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from vllm import LLM, EngineArgs, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest

from tandem_plugin.engine.completion import (
    NOTHING,
    SeedSource,
    SentRequest,
    TandemParams,
    resolve_requests,
    signed_completion,
    with_tandem,
)
from tandem_plugin.engine.token_scores import RequestScores
from tandem_plugin.engine.tokenizer_check import engine_rules
from tandem_plugin.engine.wire import RPC_DRAFT_STATS, RPC_MEASURES, DraftStats, MeasureSums
from tandem_plugin.errors import ConfigError, EngineError, RequestError
from tandem_plugin.rules import ResolvedRequest, TandemRules
from tandem_plugin.spans import TokenBytes

__all__ = ["LLM", "EngineArgs", "LoRARequest", "RequestOutput", "SamplingParams", "TandemLLM"]
"""``TandemLLM``, and what its callers need of vLLM: nothing outside the engine imports it."""

Key = TypeVar("Key")


class TandemLLM(LLM):  # type: ignore[misc]  # vllm is untyped here
    """``vllm.LLM`` in tandem: the same arguments, plus ``tandem={...}`` with the settings.

    tandem: the mapping otherwise passed as ``additional_config={"tandem": ...}``, such as
    ``{"schedule": "word", "junior": "Qwen/Qwen3-1.7B"}``. If it contains a ``seed``, requests
    without their own seed get the same seeds in every run; otherwise they get fresh ones.

    Every method that sends requests also accepts ``tandem``: a tandem seed, a mapping such as
    ``{"seed": 7, "p": 0.3}``, or ``"off"`` for the senior alone; one value for all prompts, or a
    list with one per prompt. If you pass one seed for several prompts, the first prompt uses it as
    is and the others use seeds derived from it. Each output is a :class:`TandemCompletion`: a
    ``CompletionOutput`` with ``authorship`` (an :class:`Authorship`), ``spans`` with their text,
    ``tandem_seed``, ``tandem_fingerprint`` and ``tandem_schedule``, enough to replay it anywhere;
    all are None if tandem was off. With ``partner_logprobs`` it also has both models' log
    probability of every token. Notebooks display it in its authors' colours.

    Raises :class:`ConfigError` or :class:`EngineError` at construction if the settings are
    incompatible with the engine, and :class:`RequestError` for a request that cannot be honoured.
    """

    def __init__(
        self, model: str, *, tandem: Mapping[str, Any] | None = None, **arguments: Any
    ) -> None:
        additional = arguments.pop("additional_config", None) or {}
        if not isinstance(additional, Mapping):
            raise ConfigError("additional-config-not-mapping", kind=type(additional).__name__)
        additional = dict(additional)
        if tandem is not None and "tandem" in additional:
            raise ConfigError("tandem-settings-twice")
        settings = additional.setdefault("tandem", dict(tandem or {}))
        seed = settings.get("seed") if isinstance(settings, Mapping) else None
        super().__init__(model, additional_config=additional, **arguments)
        self._seeds = SeedSource(seed)
        self._requests: dict[str, SentRequest] = {}
        has_scores = self.tandem_rules.config.partner_logprobs
        self._scores = RequestScores(self.collective_rpc) if has_scores else None

    @property
    def tandem_rules(self) -> TandemRules:
        """The rules of this engine."""
        return engine_rules(self.llm_engine.vllm_config)

    def draft_stats(self) -> DraftStats:
        """Statistics of the junior's drafts since the engine started.

        Raises :class:`EngineError` in lockstep, which does not draft.
        """
        if self.tandem_rules.config.mode != "speculative":
            raise EngineError("lockstep-without-draft-statistics")
        workers: list[dict[str, int]] = self.collective_rpc(RPC_DRAFT_STATS)
        return DraftStats(**workers[0])

    def measures(self) -> MeasureSums:
        """How well each model predicted what the other wrote, in the steps measured since startup.

        Raises :class:`EngineError` if measuring is disabled.
        """
        config = self.tandem_rules.config
        if not config.measure_every and not config.partner_logprobs:
            raise EngineError("measuring-disabled")
        workers: list[dict[str, float]] = self.collective_rpc(RPC_MEASURES)
        return MeasureSums(**workers[0])

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tandem: TandemParams | Sequence[TandemParams] = None,
        use_tqdm: bool | Callable[..., Any] = True,
        **options: Any,
    ) -> list[RequestOutput]:
        """As ``vllm.LLM.generate``, in tandem."""
        self.enqueue(prompts, sampling_params, tandem=tandem, use_tqdm=use_tqdm, **options)
        return self.wait_for_completion(RequestOutput, use_tqdm=use_tqdm)

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        *,
        tandem: TandemParams | Sequence[TandemParams] = None,
        **options: Any,
    ) -> list[RequestOutput]:
        """As ``vllm.LLM.chat``, in tandem."""
        self.enqueue_chat(messages, sampling_params, use_tqdm, tandem=tandem, **options)
        return self.wait_for_completion(RequestOutput, use_tqdm=use_tqdm)

    def enqueue(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tandem: TandemParams | Sequence[TandemParams] = None,
        **options: Any,
    ) -> list[str]:
        """As ``vllm.LLM.enqueue``, in tandem; :meth:`wait_for_completion` gives the outputs."""
        prompts = _listed(prompts, _is_one_prompt)
        params, requests = self._in_tandem(sampling_params, tandem, len(prompts))
        return self._noted(super().enqueue(prompts, params, **options), requests)

    def enqueue_chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        *,
        tandem: TandemParams | Sequence[TandemParams] = None,
        **options: Any,
    ) -> list[str]:
        """As ``vllm.LLM.enqueue_chat``, in tandem."""
        messages = _listed(messages, _is_one_conversation)
        params, requests = self._in_tandem(sampling_params, tandem, len(messages))
        return self._noted(super().enqueue_chat(messages, params, use_tqdm, **options), requests)

    def wait_for_completion(
        self,
        output_type: Any = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
    ) -> list[Any]:
        """As ``vllm.LLM.wait_for_completion``, with the authorship of each response."""
        kind = RequestOutput if output_type is None else output_type
        outputs: list[Any] = super().wait_for_completion(kind, use_tqdm=use_tqdm)
        self._sign(outputs)
        self._forget(list(self._requests))  # the engine is empty: the others were aborted
        return outputs

    def stream(
        self, requests: Iterable[tuple[Key, Any, SamplingParams, TandemParams]], most: int
    ) -> Iterator[tuple[Key, RequestOutput]]:
        """Yield responses as they finish, with at most ``most`` requests in the engine.

        requests: (key, prompt, sampling parameters, tandem) of each; keys are returned with the
        outputs. Requests are taken from the iterable as others finish. If the caller stops early or
        an error occurs, requests still in the engine are aborted. A request aborted elsewhere
        yields nothing.
        """
        if self.llm_engine.has_unfinished_requests():
            raise EngineError("engine-requests-unfinished")
        waiting = iter(requests)
        running: dict[str, tuple[Key, str]] = {}
        try:
            while True:
                for key, prompt, params, tandem_params in islice(waiting, most - len(running)):
                    (name,) = self.enqueue([prompt], params, tandem=tandem_params, use_tqdm=False)
                    running[_external(name)] = key, name
                if not running:
                    return
                for output in self.llm_engine.step():
                    if output.finished and output.request_id in running:
                        key, _ = running.pop(output.request_id)
                        self._sign([output])
                        yield key, output
                if not self.llm_engine.has_unfinished_requests():
                    self._forget(running)  # aborted elsewhere
                    running.clear()
        finally:
            self._forget(running)
            if running:
                self.llm_engine.abort_request([name for _, name in running.values()], internal=True)

    def _in_tandem(
        self, params: Any, tandem_params: TandemParams | Sequence[TandemParams], prompts: int
    ) -> tuple[list[SamplingParams], list[SentRequest]]:
        """Sampling parameters of each prompt with its tandem request, fingerprint included."""
        if params is None:
            params = self.get_default_sampling_params()
        prompt_params = list(params) if isinstance(params, Sequence) else [params] * prompts
        if len(prompt_params) != prompts:
            raise RequestError(
                "sampling-params-count-differs", params=len(prompt_params), prompts=prompts
            )
        if any("tandem" in (prompt_param.extra_args or {}) for prompt_param in prompt_params):
            if tandem_params is not None:
                raise RequestError("request-tandem-twice")
            tandem_params = [
                (prompt_param.extra_args or {}).get("tandem") for prompt_param in prompt_params
            ]
        resolved = resolve_requests(self.tandem_rules, tandem_params, prompts, self._seeds)
        requests = [
            self._as_sent(prompt_param, request)
            for prompt_param, request in zip(prompt_params, resolved, strict=True)
        ]
        return [
            with_tandem(prompt_param, request)
            for prompt_param, request in zip(prompt_params, requests, strict=True)
        ], requests

    def _as_sent(self, params: SamplingParams, resolved: ResolvedRequest | None) -> SentRequest:
        if self._scores is None or resolved is None:
            return SentRequest(resolved, None, params.n)
        return SentRequest(resolved, self._scores.new_name(), params.n)

    def _noted(self, names: list[str], requests: list[SentRequest]) -> list[str]:
        self._requests.update(zip(map(_external, names), requests, strict=True))
        return names

    def _forget(self, names: Iterable[str]) -> None:
        """Forget requests that will produce no output."""
        gone = [self._requests.pop(name, NOTHING) for name in names]
        if self._scores is not None:
            self._scores.forget(name for request in gone for name in request.names)

    def _sign(self, outputs: Sequence[RequestOutput]) -> None:
        """Attach the replayed authorship to each output."""
        requests = [self._requests.pop(output.request_id, NOTHING) for output in outputs]
        scores: dict[str, NDArray[np.float32]] = {}
        if self._scores is not None:
            lengths = {
                request.names[completion.index]: len(completion.token_ids)
                for output, request in zip(outputs, requests, strict=True)
                for completion in output.outputs
                if request.names
            }
            scores = self._scores.fetch(lengths)
        for output, request in zip(outputs, requests, strict=True):
            output.outputs = [
                signed_completion(
                    completion, output.prompt_token_ids, request, self._token_bytes, scores
                )
                for completion in output.outputs
            ]

    @cached_property
    def _token_bytes(self) -> TokenBytes:
        return TokenBytes(self.tandem_rules.vocabulary)


def _listed(value: Any, is_one: Callable[[Any], bool]) -> list[Any]:
    return [value] if is_one(value) else list(value)


def _is_one_prompt(prompts: Any) -> bool:
    """Whether this is one prompt (a text, a mapping, or token ids) and not a list of them."""
    if isinstance(prompts, (str, bytes, Mapping)):
        return True
    return isinstance(prompts, Sequence) and len(prompts) > 0 and isinstance(prompts[0], int)


def _is_one_conversation(messages: Any) -> bool:
    return len(messages) > 0 and isinstance(messages[0], Mapping)


def _external(name: str) -> str:
    """The id that outputs have: vLLM appends a random part to the number that ``LLM`` assigns."""
    return name.partition("-")[0]
