"""TRL's own ``GRPOTrainer`` over a model of the conformance suite, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared_rollouts import PIECES


def word_tokenizer() -> Any:
    """A tokenizer of the suite's vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(PIECES)}, PIECES[0]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=PIECES[1], pad_token=PIECES[2])


def grpo_trainer(model: Any, folder: Path, **arguments: Any) -> Any:
    """A trainer whose loss is TRL's, as in one training step over one batch."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "num_generations": 8,
        "per_device_train_batch_size": 8,
        "gradient_checkpointing": False,
    }
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(**{**settings, **arguments}),
        train_dataset=Dataset.from_list([{"prompt": PIECES[0]}] * 16),
        processing_class=word_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer
