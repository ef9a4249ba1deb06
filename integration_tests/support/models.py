"""Small random Qwen3 checkpoints with a byte-level BPE tokenizer, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CORPUS = Path(__file__).with_name("corpus.txt")
"""A text of the tests' own. Tests know ids of the tokenizer: it must stay as it is."""
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Blank lines stay whole, as in the Qwen family: the tests hand over at them as well.
PIECES = Regex(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+\n*|\s*\n+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(vocabulary: int = 1024, text: list[str] | None = None) -> Any:
    """A byte-level BPE tokenizer trained on ``text``, by default on :data:`CORPUS`."""
    corpus = text or [CORPUS.read_text(encoding="utf-8")]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(
    folder: Path,
    *,
    seed: int,
    tokenizer: Any = None,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    spread: float = 0.15,
    **config: Any,
) -> Path:
    """A random Qwen3 checkpoint in fp32; ``spread`` sets how peaked its distributions are."""
    tokenizer = tokenizer or make_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model = Qwen3ForCausalLM(Qwen3Config(**(settings | config))).to(torch.float32)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=spread)
    model.save_pretrained(folder)
    return folder
