"""Admission to a tandem engine: checks a request's tandem parameters before it enters."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from tandem_plugin.engine.junior import placeholder_ids
from tandem_plugin.engine.token_scores import sample_name
from tandem_plugin.engine.tokenizer_check import engine_rules, shared_vocabulary
from tandem_plugin.engine.wire import AUTHORS_PROCESSOR, TOKEN_LOG_NAME
from tandem_plugin.errors import EngineError, RequestError, TandemError
from tandem_plugin.files.trainers import Trainer, trainers_of_engine
from tandem_plugin.patching.in_place import Framework
from tandem_plugin.request import TandemRequest, resembles_tandem
from tandem_plugin.rules import ResolvedRequest
from tandem_plugin.seeds import sample_seed

_UNDRAFTED: dict[str, Any] = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "bad_words": None,
    "structured_outputs": None,
    "thinking_token_budget": None,
}
"""Parameters that depend on the tokens so far, each with its neutral value."""


def check_sampling(params: Any, *, in_tandem: bool) -> None:
    """Raise :class:`RequestError` for sampling parameters that drafting cannot honour exactly.

    in_tandem: whether the request is in tandem. A request to the senior alone is checked by vLLM,
    which rejects ``min_p`` and ``logit_bias`` when tokens are drafted.
    """
    if getattr(params, "logprob_token_ids", None):
        raise RequestError("logprob-token-ids-unsupported")
    if not in_tandem:
        return
    for name, nothing in _UNDRAFTED.items():
        value = getattr(params, name, nothing)
        if value != nothing and value != []:
            raise RequestError("sampling-depends-on-history", name=name, asked=value)


_OWN_NAMES = {"tandem", TOKEN_LOG_NAME}
_VLLMS_NAMES = {"kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode", "session_id"}
"""What vLLM reads there, 0.24 to 0.33: ``vllm.v1.request.Request``, and its server a session."""

_OF_A_REQUEST = {"seed", "schedule", "fingerprint"}
"""Fields of a tandem request that have no effect outside ``tandem``."""


sent_to_server: ContextVar[Mapping[str, Any]] = ContextVar(
    "sent_to_server", default=MappingProxyType({})
)
"""In a server's process: what the body of the current HTTP request has in its place for tandem."""


def tandem_argument(params: Any) -> object:
    """The tandem parameters in ``SamplingParams.extra_args``; None if there are none."""
    return (params.extra_args or {}).get("tandem")


def check_request(vllm_config: Any, params: Any) -> ResolvedRequest | None:
    """Resolve a request's parameters; :class:`RequestError` if this engine cannot honour them."""
    if not hasattr(params, "extra_args"):
        return None
    with _clients_error():
        _check_arrival(vllm_config, params.extra_args or {}, sent_to_server.get())
        rules = engine_rules(vllm_config)
        resolved = rules.for_request(tandem_argument(params))
        if rules.config.max_drafts:
            check_sampling(params, in_tandem=resolved is not None)
        return resolved


def _check_arrival(
    vllm_config: Any, extra_args: Mapping[str, Any], sent: Mapping[str, Any]
) -> None:
    """Raise :class:`RequestError` for names that have no reader, or that did not arrive.

    sent: what the client of a server sent. An endpoint that drops it would be answered by the
    senior alone.
    """
    _check_names(vllm_config, {**sent, **extra_args})
    if "tandem" in sent and extra_args.get("tandem") != sent["tandem"]:
        raise RequestError("request-field-dropped")


def _check_names(vllm_config: Any, extra_args: Mapping[str, Any]) -> None:
    """Raise :class:`RequestError` for a name without a reader, such as a misspelt ``tandem``.

    Where other parts of the engine may have names of their own, only those are rejected that
    resemble ``tandem`` or are a field of its.
    """
    unknown = set(map(str, extra_args)) - _OWN_NAMES - _VLLMS_NAMES
    if unknown and _has_other_readers(vllm_config):
        misplaced = set() if "tandem" in extra_args else _OF_A_REQUEST
        unknown = {name for name in unknown if name in misplaced or resembles_tandem(name)}
    if unknown:
        raise RequestError("request-field-unknown", name=min(unknown))


def _has_other_readers(vllm_config: Any) -> bool:
    """Whether a logits processor, connector or scheduler of the user's may read ``extra_args``."""
    processors = {*(vllm_config.model_config.logits_processors or ())} - {AUTHORS_PROCESSOR}
    return bool(
        processors
        or vllm_config.kv_transfer_config
        or vllm_config.ec_transfer_config
        or vllm_config.scheduler_config.scheduler_cls
        or entry_points(group="vllm.logits_processors")
    )


def write_resolved(resolved: ResolvedRequest | None, params: Any) -> None:
    """Write everything that was resolved for a request into the engine's copy of its parameters.

    The workers use them and reject a fingerprint other than their own.
    """
    if resolved is not None:
        params.extra_args = {**params.extra_args, "tandem": resolved.request().to_wire()}


def check_prompt(vllm_config: Any, token_ids: Sequence[int] | None) -> None:
    """Raise :class:`RequestError` for a prompt with token ids that not both models have."""
    shared = shared_vocabulary(vllm_config)
    if token_ids and max(token_ids) >= shared:
        with _clients_error():
            raise RequestError("prompt-token-not-shared", token_id=max(token_ids), shared=shared)


def check_images(
    vllm_config: Any, resolved: ResolvedRequest | None, token_ids: Sequence[int], features: Any
) -> None:
    """Raise :class:`RequestError` for a prompt whose images would not be seen as they were meant.

    token_ids: of the prompt, in which vLLM has replaced each image's placeholder by as many as the
    image has tokens. features: vLLM's list of images and where they are; None without any.
    """
    placeholders = placeholder_ids(vllm_config)
    if not placeholders:
        return
    spans = [(feature.mm_position.offset, feature.mm_position.length) for feature in features or ()]
    covered = {start + token for start, length in spans for token in range(length)}
    with _clients_error():
        for position, token_id in enumerate(token_ids):
            if token_id in placeholders and position not in covered:
                raise RequestError(
                    "image-placeholder-without-image", token_id=token_id, position=position
                )
        length = None if resolved is None else resolved.prompt_length
        end = max((start + length for start, length in spans), default=0)
        if length is not None and end > length:
            raise RequestError("image-in-response", prompt_length=length, end=end)


def check_prefix(
    resolved: ResolvedRequest | None, samples: int, token_ids: Sequence[int] | None
) -> None:
    """Raise :class:`RequestError` for a response that cannot be continued.

    token_ids: what was sent as the prompt.
    """
    if resolved is None:
        return
    with _clients_error():
        prefix = resolved.prefix(token_ids or ())
        if prefix and samples > 1:
            raise RequestError("continuation-with-samples", samples=samples, length=len(prefix))


def check_input(resolved: ResolvedRequest | None, *, grows: bool) -> None:
    """Raise :class:`RequestError` for a tandem request whose prompt is sent in parts.

    grows: whether further parts of the prompt may follow the generated tokens. There would then be
    several responses, and the draws of the later ones are undefined.
    """
    if resolved is not None and grows:
        with _clients_error():
            raise RequestError("streamed-prompt-unsupported")


def refuse_beam_search() -> None:
    """Raise :class:`RequestError`: a beam has no author."""
    with _clients_error():
        raise RequestError("beam-search-unsupported")


def check_settings_are_read() -> None:
    """Raise :class:`RequestError` for settings of tandem that a trainer's own command drops.

    Called for a request to an engine without tandem: the run would silently not be in tandem. Not
    called at engine startup: OpenRLHF 0.11.2's trainer waits five minutes for an engine that died
    (``StatelessProcessGroup.create``), but stops at once if a request fails.
    """
    for trainer in trainers_of_engine():
        if Framework(trainer.name).is_in_place:
            continue  # the run is in tandem; this engine is another one in its process
        if source := _dropped_settings(trainer):
            with _clients_error():
                raise EngineError(
                    "trainer-command-without-tandem",
                    source=source,
                    trainer=trainer.name,
                    command=trainer.command,
                )


def _dropped_settings(trainer: Trainer) -> str:
    if trainer.drops_variable and os.environ.get("TANDEM_CONFIG", "").strip():
        return "TANDEM_CONFIG"
    module, _, function = trainer.settings.partition(":")
    if not module:
        return ""
    source: str = getattr(importlib.import_module(module), function)(sys.argv[1:])
    return source


@contextmanager
def _clients_error() -> Iterator[None]:
    """Let vLLM treat tandem's request errors as client errors.

    ``AsyncLLM`` passes on only errors of its own type ``VLLMClientError``, and its server answers
    them with status 400; any other becomes an internal error without our message.
    """
    try:
        yield
    except TandemError as error:
        kind = type(error) if isinstance(error, RequestError) else RequestError
        raise error.recast(_client_kind(kind)) from error


def _client_kind(kind: type[RequestError]) -> type[RequestError]:
    """A subclass of both tandem's error and vLLM's."""
    from vllm.exceptions import VLLMValidationError

    if kind not in _client_kinds:
        bases = (VLLMValidationError, kind)
        _client_kinds[kind] = type(kind.__name__, bases, {"__doc__": kind.__doc__})
    return _client_kinds[kind]


_client_kinds: dict[type[RequestError], type[RequestError]] = {}


def sample_params(params: Any, index: int) -> Any:
    """The parameters of sample ``index`` of a request with n > 1: its tandem seed is its own.

    Returns ``params`` itself if the request is not in tandem.
    """
    request = TandemRequest.parse(tandem_argument(params))
    if request is None:
        return params
    request = replace(request, seed=sample_seed(request.seed, index))
    sample = copy(params)
    sample.extra_args = {**params.extra_args, "tandem": request.to_wire()}
    if name := params.extra_args.get(TOKEN_LOG_NAME):
        sample.extra_args[TOKEN_LOG_NAME] = sample_name(name, index)
    return sample
