"""A tokenizer of sixty words, shaped like the ones of the Qwen family: a word keeps its space."""

from __future__ import annotations

from typing import Any

from two_notations.notation import BOTH, OPERATIONS

__all__ = ["make_tokenizer"]

_UNKNOWN, _PAD, _END = "<|unknown|>", "<|endoftext|>", "<|im_end|>"
_PIECES = r" ?\\boxed\{\}|\\boxed\{|\}| ?\p{L}+|\p{N}|\n\n|\n|\s+|."
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def make_tokenizer() -> Any:
    """A Hugging Face fast tokenizer; always the same one. Text of other words is unknown to it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["Compute", r" \boxed{}", "\n", "\n\n", r"\boxed{", "}", " is"]
    words += [f" {name}" for name in OPERATIONS]
    for notation in BOTH:
        words += [*notation.openings, *(f" {number}" for number in notation.numbers)]
    words += [str(digit) for digit in range(10)]
    pieces = [_UNKNOWN, _PAD, _END, *(_piece(word) for word in words)]
    core = Tokenizer(
        models.WordLevel({piece: place for place, piece in enumerate(pieces)}, unk_token=_UNKNOWN)
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=_END,
        pad_token=_PAD,
        unk_token=_UNKNOWN,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _piece(word: str) -> str:
    """A word as byte-level vocabularies write it."""
    return word.replace(" ", "Ġ").replace("\n", "Ċ")
