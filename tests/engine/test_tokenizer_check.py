"""What is compared between two tokenizers, and what each difference means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from refused import refused

from tandem_plugin import Vocabulary
from tandem_plugin.engine import tokenizer_check
from tandem_plugin.engine.tokenizer_check import (
    first_difference,
    harmless_differences,
    other_frames,
)

SENIOR = Vocabulary(
    ("a", "Ġa", "<s>"), "senior", "byte-level BPE", frozenset({2}), {"a a": (0, 1), "A": ()}
)


def test_same_tokens_of_another_family_are_another_text() -> None:
    """SentencePiece would write Ġ as it is."""
    assert first_difference(SENIOR, SENIOR) is None
    assert first_difference(SENIOR, replace(SENIOR, declared="SentencePiece")) == 1


@pytest.mark.parametrize(
    ("pieces", "first"),
    [(("a", "Ġb", "<s>"), 1), (("a", "Ġa"), 2), (("a", "Ġa", "<s>", "b"), 3)],
)
def test_first_id_that_differs_is_found(pieces: tuple[str, ...], first: int) -> None:
    assert first_difference(SENIOR, replace(SENIOR, pieces=pieces)) == first


def test_encodings_and_special_tokens_that_differ_are_said() -> None:
    assert not [*harmless_differences(SENIOR, SENIOR)]
    lower = replace(SENIOR, encodings={"a a": (0, 1), "A": (0,)})
    (said,) = harmless_differences(SENIOR, lower)
    assert said.startswith("encode 'A' differently (1 and 0 tokens)")
    (said,) = harmless_differences(SENIOR, replace(SENIOR, special=frozenset()))
    assert "'<s>'" in said


def test_list_of_tokens_has_no_encodings_to_compare() -> None:
    assert not [*harmless_differences(SENIOR, replace(SENIOR, encodings={}))]


def test_special_tokens_around_a_text_are_compared() -> None:
    def tokenizer(*first: int) -> SimpleNamespace:
        return SimpleNamespace(
            encode=lambda text, add_special_tokens=True: [*first * add_special_tokens, 3, 4]
        )

    assert not [*other_frames(tokenizer(2), tokenizer(2))]
    assert not [*other_frames(None, tokenizer(2))]
    assert len([*other_frames(tokenizer(), tokenizer(2))]) == 1


def test_tokenizers_past_a_models_vocabulary_and_configurations_without_a_size_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SimpleNamespace(model="senior", get_vocab_size=lambda: 2, trust_remote_code=False)
    config = SimpleNamespace(model_config=model)
    monkeypatch.setattr(tokenizer_check, "_vocabulary_size", lambda *_: 8)
    monkeypatch.setattr(tokenizer_check, "_junior_vocabulary", lambda *_: SENIOR)
    rules = SimpleNamespace(vocabulary=SENIOR)
    monkeypatch.setattr(tokenizer_check, "engine_rules", lambda _: rules)
    with refused("tokenizer-exceeds-vocabulary", tokens=3, junior="junior", senior_size=2):
        tokenizer_check.check_vocabularies(config, "junior")
    monkeypatch.undo()
    vllm_configs = pytest.importorskip("vllm.transformers_utils.config")
    monkeypatch.setattr(vllm_configs, "get_config", lambda *_: SimpleNamespace(vocab_size=None))
    with refused("junior-vocabulary-size-missing", junior="junior"):
        tokenizer_check._vocabulary_size(model, "junior")
