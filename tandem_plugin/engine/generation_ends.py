"""The token ids that end generation: those of the senior, and of the junior where they differ.

vLLM ends a request at the senior's ids. A junior that was trained to end with a different one,
such as a chat model with a base model, would write it and never be stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.engine.junior import junior_model_config
from tandem_plugin.engine.tokenizer_check import (
    engine_rules,
    junior_tokenizer,
    senior_tokenizer,
    shared_vocabulary,
)
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import ResolvedRequest
from tandem_plugin.schedules import lets_junior_write

logger = logging.getLogger(__name__)

_added: dict[str, frozenset[int]] = {}


class Pair(NamedTuple):
    """The names of an engine's models, for its messages."""

    senior: str
    junior: str


def end_at_either(vllm_config: Any, resolved: ResolvedRequest | None, params: Any) -> None:
    """Let a request in tandem end where the junior ends as well.

    params: the engine's copy of its sampling parameters. ``ignore_eos`` is honoured, and
    ``min_tokens`` keeps the added ids away as it does the senior's.
    """
    if resolved is None or not lets_junior_write(resolved.rule.schedule):
        return
    added = added_ends(vllm_config)
    params.all_stop_token_ids.update(added)
    if added and not params.ignore_eos:
        params.stop_token_ids = sorted({*(params.stop_token_ids or ()), *added})


def added_ends(vllm_config: Any) -> frozenset[int]:
    """The junior's ends at which the engine stops besides the senior's; found once per process.

    Raises :class:`EngineError` for models whose ends cannot be reconciled.
    """
    model, junior = vllm_config.model_config, vllm_config.additional_config["tandem"]["junior"]
    if junior == model.model:
        return frozenset()
    key = repr((model.model, model.revision, model.tokenizer, model.generation_config, junior))
    if key not in _added:
        senior_reader = senior_tokenizer(model)
        _added[key] = reconciled(
            ends_of(model, senior_reader),
            ends_of(junior_model_config(vllm_config), junior_tokenizer(model, junior)),
            engine_rules(vllm_config).vocabulary,
            shared_vocabulary(vllm_config),
            Pair(model.model, junior),
            ids_within_responses(senior_reader, engine_rules(vllm_config).vocabulary),
        )
    return _added[key]


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """The ids at which vLLM ends a model's generation; -1, as some name none, is no id.

    model: its configuration. tokenizer: None for an engine without one. Source:
    ``SamplingParams.update_from_generation_config``. Raises :class:`EngineError` for ends that are
    no token ids.
    """
    listed = model.try_get_generation_config().get("eos_token_id")
    listed = [listed] if isinstance(listed, int) else listed or []
    if not isinstance(listed, list) or not all(type(end) is int for end in listed):
        raise EngineError("generation-end-invalid", model=model.model, ends=listed)
    tokenizer_end = getattr(tokenizer, "eos_token_id", None)
    ends = [*listed, *([] if tokenizer_end is None else [tokenizer_end])]
    return frozenset(end for end in ends if end >= 0)


def reconciled(
    senior: frozenset[int],
    junior: frozenset[int],
    vocabulary: Vocabulary,
    shared: int,
    pair: Pair,
    within: frozenset[int] = frozenset(),
) -> frozenset[int]:
    """The ids to stop at besides the senior's, by which either model can end a response.

    The junior's end counts if it is a special token that the senior does not write within a
    response: an ordinary token would cut the senior's text. senior, junior: the ends of each.
    shared: the number of ids that both models have. within: special tokens of a response's middle.
    Raises :class:`EngineError` for a team that would never stop, or stop in the middle.
    """
    reachable = {i for i in senior if i < shared}
    if senior and not reachable:
        raise EngineError(
            "generation-end-not-shared",
            model=pair.senior,
            ends=_named(senior, vocabulary),
            size=shared,
        )
    unshared = junior - senior
    added = {i for i in unshared if i < shared and i in vocabulary.special and i not in within}
    if unshared and not added and not junior & reachable:
        raise EngineError(
            "generation-ends-differ",
            junior=pair.junior,
            ends=_named(unshared, vocabulary),
            model=pair.senior,
            expected=_named(reachable, vocabulary),
        )
    _say(added, unshared - added, bool(reachable or added), vocabulary, pair)
    return frozenset(added)


def _say(
    added: set[int], ignored: frozenset[int], ends: bool, vocabulary: Vocabulary, pair: Pair
) -> None:
    if added:
        logger.warning(
            "The junior %r ends generation with %s and the senior %r does not: responses in tandem "
            "end there as well.",
            pair.junior,
            _named(added, vocabulary),
            pair.senior,
        )
    if ignored:
        logger.warning(
            "The junior %r also ends generation with %s, which would cut the senior's text: "
            "responses do not end there.",
            pair.junior,
            _named(ignored, vocabulary),
        )
    if not ends:
        logger.warning(
            "Neither model names an id that ends generation (eos_token_id): without stop strings, "
            "every response has its maximum length."
        )


def _named(ids: Iterable[int], vocabulary: Vocabulary) -> str:
    """The ids and their tokens, for a message."""
    pieces = vocabulary.pieces
    tokens = (f"{i} ({pieces[i]!r})" if i < len(pieces) else str(i) for i in sorted(ids))
    return ", ".join(tokens) or "none"


def ids_within_responses(tokenizer: Any, vocabulary: Vocabulary) -> frozenset[int]:
    """The special tokens that a chat template writes within a response, before its content ends.

    Such as the end of a channel, after which the answer begins. Empty without a chat template.
    """
    thought = {"reasoning_content": "A thought", "thinking": "A thought"}
    turns = [{"role": "user", "content": "A question"}]
    answered = [*turns, {"role": "assistant", "content": "An answer", **thought}]
    try:
        prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        text = tokenizer.apply_chat_template(answered, tokenize=False)
    except Exception:  # no template, or one that takes other messages
        return frozenset()
    pairs = enumerate(zip(prompt, text, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), len(prompt))
    if "A question" not in prompt[:same]:
        return frozenset()
    begin = text[same:].partition("An answer")[0]
    return frozenset(i for i in vocabulary.special if vocabulary.pieces[i] in begin)
