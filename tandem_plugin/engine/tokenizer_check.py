"""The engine's tokenizer, which defines the rules' boundaries and which the junior must share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.boundaries.tokenizer_files import loading
from tandem_plugin.boundaries.vocabulary_families import PLAIN
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError, TokenizerError
from tandem_plugin.rules import TandemRules

logger = logging.getLogger(__name__)

_rules: dict[str, TandemRules] = {}
_sizes: dict[str, int] = {}


def engine_rules(vllm_config: Any) -> TandemRules:
    """The rules of a tandem engine, created once per process from its configuration."""
    settings = vllm_config.additional_config["tandem"]
    model = vllm_config.model_config
    key = repr((model.tokenizer, model.tokenizer_revision, sorted(settings.items(), key=str)))
    if key not in _rules:
        _rules[key] = TandemRules(TandemConfig.from_mapping(settings), _senior_vocabulary(model))
    return _rules[key]


def check_vocabularies(vllm_config: Any, junior: str) -> None:
    """Raise :class:`EngineError` unless senior and junior have the same token ids.

    Their vocabularies may be padded to different lengths past the tokenizer's. What else differs
    between their tokenizers is logged once: the senior's encodes all prompts.
    """
    model = vllm_config.model_config
    if junior == model.model:
        return
    size, senior_size = _vocabulary_size(model, junior), int(model.get_vocab_size())
    senior_vocabulary = engine_rules(vllm_config).vocabulary
    junior_vocabulary = _junior_vocabulary(model, junior, size)
    differing = first_difference(senior_vocabulary, junior_vocabulary)
    if differing is not None:
        raise EngineError(
            "junior-tokenizer-differs", junior=junior, model=model.model, differing=differing
        )
    tokens = len(senior_vocabulary)
    if min(size, senior_size) < tokens:
        raise EngineError(
            "tokenizer-exceeds-vocabulary",
            tokens=tokens,
            junior=junior,
            size=size,
            model=model.model,
            senior_size=senior_size,
        )
    differences = [
        *harmless_differences(senior_vocabulary, junior_vocabulary),
        *other_frames(senior_tokenizer(model), junior_tokenizer(model, junior)),
    ]
    for difference in differences:
        logger.warning("The tokenizers of the junior %r and the senior %s", junior, difference)
    if size != senior_size:
        unused = min(size, senior_size), max(size, senior_size)
        logger.info("The ids from %d to %d, which one model lacks, are never sampled.", *unused)


def first_difference(senior: Vocabulary, junior: Vocabulary) -> int | None:
    """The first id whose token, or the text it stands for, differs; None if none does."""
    for first, right in ((senior.pieces, junior.pieces), (senior.texts(), junior.texts())):
        if first != right:
            pairs = enumerate(zip(first, right, strict=False))
            return next((i for i, (a, b) in pairs if a != b), min(len(first), len(right)))
    return None


def harmless_differences(senior: Vocabulary, junior: Vocabulary) -> Iterator[str]:
    """What differs between two tokenizers with the same tokens, as ends of a sentence."""
    for text, ids in senior.encodings.items():
        junior_ids = junior.encodings.get(text, ids)
        if junior_ids != ids:
            yield (
                f"encode {text!r} differently ({len(junior_ids)} and {len(ids)} tokens): they "
                "normalise or split text in different ways. The senior's encodes all prompts, "
                "which the junior then sees in a form that it was not trained on."
            )
            break
    if differing := senior.special ^ junior.special:
        pieces = ", ".join(repr(senior.pieces[i]) for i in sorted(differing)[:5])
        yield (
            f"do not mark the same tokens as special: {pieces}. This is harmless: only decoding "
            "omits special tokens, and the senior's decodes all responses."
        )


def other_frames(senior: Any, junior: Any) -> Iterator[str]:
    """Whether the tokenizers add different special tokens to a text, as an end of a sentence."""
    if senior is None:
        return
    added = [
        {*tokenizer.encode(PLAIN)}.difference(tokenizer.encode(PLAIN, add_special_tokens=False))
        for tokenizer in (senior, junior)
    ]
    if added[0] != added[1]:
        yield (
            "add other special tokens to a text. The senior's encodes prompts without a chat "
            "template, which the junior may have been trained to see in another form."
        )


def shared_vocabulary(vllm_config: Any) -> int:
    """Number of token ids that both models have; higher ids are never sampled."""
    model = vllm_config.model_config
    junior = vllm_config.additional_config["tandem"]["junior"]
    if junior not in _sizes:
        _sizes[junior] = _vocabulary_size(model, junior)
    return min(_sizes[junior], int(model.get_vocab_size()))


def _vocabulary_size(model: Any, junior: str) -> int:
    from vllm.transformers_utils.config import get_config

    if junior == model.model:
        return int(model.get_vocab_size())
    config = get_config(junior, model.trust_remote_code)
    size = getattr(getattr(config, "text_config", config), "vocab_size", None)
    if not isinstance(size, int):
        raise EngineError("junior-vocabulary-size-missing", junior=junior)
    return size


def senior_tokenizer(model: Any) -> Any:
    """The engine's tokenizer; None for one without.

    Raises :class:`TokenizerError` if it cannot be loaded.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    with loading(str(model.tokenizer)):
        return cached_tokenizer_from_config(model)


def junior_tokenizer(model: Any, junior: str) -> Any:
    """The junior's tokenizer, loaded as the engine loads the senior's.

    Raises :class:`TokenizerError` if it cannot be loaded.
    """
    from vllm.tokenizers import cached_get_tokenizer

    with loading(junior):
        return cached_get_tokenizer(
            junior, tokenizer_mode=model.tokenizer_mode, trust_remote_code=model.trust_remote_code
        )


def _senior_vocabulary(model: Any) -> Vocabulary:
    tokenizer = senior_tokenizer(model)
    if tokenizer is None:
        return Vocabulary.from_path(model.tokenizer)
    return Vocabulary.from_tokenizer(tokenizer)


def _junior_vocabulary(model: Any, junior: str, size: int) -> Vocabulary:
    try:
        return Vocabulary.from_tokenizer(junior_tokenizer(model, junior))
    except TokenizerError as error:
        if error.code != "tokenizer-files-missing":
            raise
        raise EngineError(
            "junior-tokenizer-missing", junior=junior, size=size, model=model.model
        ) from error
