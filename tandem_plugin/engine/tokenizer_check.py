"""The engine's tokenizer, which defines the rules' boundaries and which the junior must share."""

from __future__ import annotations

import logging
from typing import Any

from tandem_plugin.boundaries import Vocabulary
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

    Their vocabularies may be padded to different lengths past the tokenizer's.
    """
    model = vllm_config.model_config
    if junior == model.model:
        return
    size, senior_size = _vocabulary_size(model, junior), model.get_vocab_size()
    try:
        junior_vocabulary = Vocabulary.from_path(junior)
    except TokenizerError:
        if size != senior_size:
            raise EngineError(
                "TP368", junior=junior, size=size, model=model.model, senior_size=senior_size
            ) from None
        logger.warning(
            "The junior %r has no tokenizer; assuming that it uses the senior's.", junior
        )
        return
    senior_vocabulary = _senior_vocabulary(model)
    if junior_vocabulary.pieces != senior_vocabulary.pieces:
        pairs = zip(junior_vocabulary.pieces, senior_vocabulary.pieces, strict=False)
        differing = next(
            (i for i, (left, right) in enumerate(pairs) if left != right),
            min(len(junior_vocabulary), len(senior_vocabulary)),
        )
        raise EngineError("TP369", junior=junior, model=model.model, differing=differing)
    tokens = len(senior_vocabulary)
    if min(size, senior_size) < tokens:
        raise EngineError(
            "TP370",
            tokens=tokens,
            junior=junior,
            size=size,
            model=model.model,
            senior_size=senior_size,
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
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        raise EngineError("TP371", junior=junior)
    return size


def _senior_vocabulary(model: Any) -> Vocabulary:
    from vllm.tokenizers import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        return Vocabulary.from_path(model.tokenizer)
    return Vocabulary.from_tokenizer(tokenizer)
