"""A small Qwen3 model, taught on worked solutions until it solves a fair part of new problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from data import Message, make_row
from problems import Problem, draw_distinct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizer import train_tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tandem_plugin.grading import grade
from tandem_plugin.progress import ShownProgress, waiting

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Lesson:
    """How the model is built and taught.

    First come ``clean_steps`` of solutions without slips, then ``slipping_steps`` of solutions
    each of whose steps slips with probability ``slip_rate``. The model knows what is right and
    does as it was shown last: with three steps a solution it solves somewhat less than
    ``(1 - slip_rate) ** 3`` of new problems at temperature 1.
    """

    vocab_size: int = 640
    hidden_size: int = 128
    layers: int = 3
    batch_size: int = 32
    clean_steps: int = 480
    slipping_steps: int = 120
    slip_rate: float = 0.34
    learning_rate: float = 3e-3
    seed: int = 7

    @property
    def steps(self) -> int:
        return self.clean_steps + self.slipping_steps


def teach(
    lesson: Lesson, held_out: Sequence[Problem], out: Path, console: Console | None = None
) -> float:
    """Teaches a fresh model and saves it to ``out`` as a Hugging Face checkpoint.

    No question of ``held_out`` is taught. Returns the pass rate on them, sampled once each at
    temperature 1.
    """
    torch.manual_seed(lesson.seed)
    taught = _draw_taught(lesson, held_out)
    tokenizer = train_tokenizer(_texts(taught[:4000]), lesson.vocab_size)
    model = build_model(lesson, tokenizer)
    with ShownProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console or Console(),
        transient=False,
    ) as bar:
        _fit(model, tokenizer, taught, lesson, bar)
    with waiting("Trying the model on new problems", console or Console()):
        rate = pass_rate(model, tokenizer, held_out)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return rate


def _draw_taught(lesson: Lesson, held_out: Sequence[Problem]) -> list[Problem]:
    """The problems in the order they are taught, the slipping ones last; none is held out."""
    count = lesson.clean_steps * lesson.batch_size
    without = frozenset(problem.question for problem in held_out)
    clean = draw_distinct(count, lesson.seed, without=without)
    slipping = draw_distinct(
        lesson.slipping_steps * lesson.batch_size,
        lesson.seed + 1,
        slip_rate=lesson.slip_rate,
        without=without | {problem.question for problem in clean},
    )
    return [*clean, *slipping]


def build_model(lesson: Lesson, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A fresh float32 model whose vocabulary is exactly the tokenizer's."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=lesson.hidden_size,
        intermediate_size=3 * lesson.hidden_size,
        num_hidden_layers=lesson.layers,
        num_attention_heads=lesson.hidden_size // 32,
        num_key_value_heads=max(1, lesson.hidden_size // 64),
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return model


def encode_messages(messages: Sequence[Message], tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Token ids of the chat prompt, ready for the response."""
    text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text).input_ids)


def encode_example(problem: Problem, tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], int]:
    """Token ids of prompt and response, and how many of them are the prompt."""
    prompt = encode_messages(make_row(problem.question, problem.answer).messages, tokenizer)
    response = tokenizer(problem.solution).input_ids
    return [*prompt, *response, tokenizer.eos_token_id], len(prompt)


def _texts(problems: Sequence[Problem]) -> list[str]:
    """What the tokenizer is trained on: questions as they are asked, and their solutions."""
    return [
        f"{make_row(one.question, one.answer).messages[0]['content']}\n{one.solution}"
        for one in problems
    ]


def _fit(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    taught: Sequence[Problem],
    lesson: Lesson,
    bar: Progress,
) -> None:
    """AdamW with warm-up and cosine decay, each problem once; loss on the response tokens."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lesson.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _learning_rate(step, lesson.steps)
    )
    task = bar.add_task("Teaching the model", total=lesson.steps, state="")
    model.train()
    for step in range(lesson.steps):
        batch = taught[step * lesson.batch_size : (step + 1) * lesson.batch_size]
        examples = [encode_example(problem, tokenizer) for problem in batch]
        loss = _response_loss(model, *_collate(examples, tokenizer.pad_token_id))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            bar.update(task, completed=step + 1, state=f"loss {loss.item():.3f}")
    model.eval()


def _learning_rate(step: int, steps: int, warmup: int = 40) -> float:
    """Factor on the peak learning rate."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _collate(batch: Sequence[tuple[list[int], int]], pad: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids and labels, both [batch, length]; only response tokens have a label."""
    length = max(len(ids) for ids, _ in batch)
    input_ids = torch.full((len(batch), length), pad)
    labels = torch.full((len(batch), length), IGNORED)
    for row, (ids, prompt_length) in enumerate(batch):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, prompt_length : len(ids)] = input_ids[row, prompt_length : len(ids)]
    return input_ids, labels


def _response_loss(model: Qwen3ForCausalLM, input_ids: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy over the labelled tokens; the LM head runs only where one is needed."""
    hidden = model.model(input_ids=input_ids).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    kept = targets != IGNORED
    return cross_entropy(model.lm_head(hidden[kept]), targets[kept])


@torch.inference_mode()
def pass_rate(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: Sequence[Problem],
    *,
    temperature: float = 1.0,
    max_new_tokens: int = 64,
) -> float:
    """The part of the problems solved by one sample each, sampled at ``temperature``."""
    prompts = [
        encode_messages(make_row(problem.question, problem.answer).messages, tokenizer)
        for problem in problems
    ]
    longest = max(map(len, prompts))
    padded = [[tokenizer.pad_token_id] * (longest - len(ids)) + ids for ids in prompts]
    mask = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts]
    written = model.generate(
        torch.tensor(padded),
        attention_mask=torch.tensor(mask),
        generation_config=GenerationConfig(
            do_sample=True,
            temperature=temperature,
            top_k=0,
            max_new_tokens=max_new_tokens,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ),
    )
    responses = tokenizer.batch_decode(written[:, longest:], skip_special_tokens=True)
    scores = [
        grade(response, problem.answer).reward
        for response, problem in zip(responses, problems, strict=True)
    ]
    return sum(scores) / len(scores)
