"""Random models made on the spot, large enough that reading their weights takes the time."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

BYTES = 4
"""Bytes a value: float32, which CPUs without bfloat16 instructions do best."""

LOGITS = 0.07
"""The standard deviation of the logits, at which two such models share 0.96 of a distribution."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3 model."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int = 32_768
    tied: bool = False
    """Whether the output layer is the embedding."""
    bytes_a_value: int = BYTES
    """4 for float32, 2 for bfloat16."""

    @property
    def parameters(self) -> int:
        """How many values the weights hold."""
        queries = self.hidden * self.heads * self.head_dim
        keys_and_values = 2 * self.hidden * self.kv_heads * self.head_dim
        mlp = 3 * self.hidden * self.intermediate
        norms = 2 * self.hidden + 2 * self.head_dim
        layer = 2 * queries + keys_and_values + mlp + norms
        ends = (1 if self.tied else 2) * self.vocabulary * self.hidden
        return self.layers * layer + ends + self.hidden

    @property
    def read_parameters(self) -> int:
        """How many of them a forward pass reads: of an embedding alone, not other tokens' rows."""
        return self.parameters - (0 if self.tied else self.vocabulary * self.hidden)


SENIOR = Shape(hidden=1024, intermediate=3072, layers=14, heads=16, kv_heads=8, head_dim=64)
SMALL_JUNIOR = Shape(hidden=512, intermediate=1536, layers=6, heads=8, kv_heads=4, head_dim=64)
LARGE_JUNIOR = Shape(1024, 3072, layers=8, heads=8, kv_heads=4, head_dim=128, vocabulary=512)
TINY_SENIOR = Shape(64, 128, layers=2, heads=2, kv_heads=1, head_dim=32, vocabulary=512)
TINY_JUNIOR = Shape(32, 64, layers=1, heads=1, kv_heads=1, head_dim=32, vocabulary=512)

# As Qwen publishes them, in bfloat16.
QWEN3_600M = Shape(1024, 3072, 28, 16, 8, 128, 151_936, tied=True, bytes_a_value=2)
QWEN3_1_7B = Shape(2048, 6144, 28, 16, 8, 128, 151_936, tied=True, bytes_a_value=2)
QWEN3_4B = Shape(2560, 9728, 36, 32, 8, 128, 151_936, tied=True, bytes_a_value=2)


def make(folder: Path, shape: Shape, seed: int = 0, logits: float | None = None) -> Path:
    """A random checkpoint of this shape in ``folder``, made unless it is there already.

    logits: the standard deviation that its logits shall have; the smaller, the more of their
    distributions any two such models share.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    name = "-".join(str(value) for value in asdict(shape).values())
    name += f"-seed{seed}" * bool(seed) + f"-logits{logits}" * (logits is not None)
    target, draft = folder / name, folder / f"{name}.draft"
    if target.exists():
        return target
    shutil.rmtree(draft, ignore_errors=True)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=1024,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    dtype = {4: torch.float32, 2: torch.bfloat16}[shape.bytes_a_value]
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where billions of values take seconds
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = Qwen3ForCausalLM(config).to(dtype)
    finally:
        torch.set_default_dtype(before)
    if logits is not None:  # behind the last norm, the hidden state's length is sqrt(hidden)
        spread = logits / shape.hidden**0.5
        if shape.tied:  # the embedding stays as it is, and the norm is scaled in its place
            torch.nn.init.constant_(model.model.norm.weight, spread / config.initializer_range)
        else:
            torch.nn.init.normal_(model.lm_head.weight, std=spread)
    model.save_pretrained(draft)
    del model
    if device == "cuda":  # an engine in another process gets the memory
        torch.cuda.empty_cache()
    _write_tokenizer(draft, shape.vocabulary)
    draft.rename(target)
    return target


def _write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A byte-level vocabulary of made-up words, of which a third begin with a space."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<|endoftext|>", *alphabet]
    pieces += [f"{'Ġ' if i % 3 == 0 else ''}w{i}" for i in range(vocabulary - len(pieces))]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
