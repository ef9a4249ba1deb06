"""What the demo starts from: word problems drawn from a seed, and a model taught on solutions.

The numbers are small on purpose. A solution takes three reasoning steps, separated by blank
lines, and ends with the answer in ``\\boxed{}``.

The texts a model learns from are never perfect, so a worked solution may contain slips: with
probability ``slip_rate`` the result of a step is a little off, and the rest of the solution goes
on from it. A model taught on such text reasons in clean sentences and is sometimes wrong, which
is what reinforcement learning is there to repair. ``WordProblem.answer`` is always the right one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tandem_plugin.lab.data import Problem, PromptTemplate
from tandem_plugin.lab.data.problem import prompt_ids

NAMES = ("Mia", "Tom", "Ana", "Leo", "Ida", "Max", "Eva", "Ben", "Zoe", "Sam", "Ada", "Kai")
OBJECTS = ("apples", "books", "coins", "shells", "cards", "pens", "stamps", "beads", "nuts", "cups")
CONTAINERS = ("bags", "boxes", "jars", "packs")
SLIPS = (-10, -2, -1, 1, 2, 10)

TEMPLATES = (
    (
        "{first} has {base} {things}. {first} buys {count} {containers} of {each} {things} and "
        "gives {used} to {second}. How many {things} are left?",
        "{first} buys {count} * {each} = {product} {things}.",
        "Now there are {base} + {product} = {total} {things}.",
        "After the gift to {second} there are {total} - {used} = {left} left.",
    ),
    (
        "{first} fills {count} {containers} with {each} {things} each. Then {used} {things} break "
        "and {second} brings {base} more. How many {things} are there?",
        "The {containers} hold {count} * {each} = {product} {things}.",
        "With those of {second} it makes {product} + {base} = {total}.",
        "Without the broken ones it is {total} - {used} = {left} {things}.",
    ),
    (
        "{first} and {second} share their {things}. {first} brings {base} and {second} brings "
        "{count} {containers} with {each} each. They use {used}. How many {things} remain?",
        "{second} brings {count} * {each} = {product} {things}.",
        "Together they have {base} + {product} = {total} {things}.",
        "They use {used}, so {total} - {used} = {left} remain.",
    ),
)
"""A question and the three steps of its solution: a product, a sum and a difference."""
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A word or a number keeps its leading space ("Ġ" in the vocabulary); blank lines stay whole.
PIECES = Regex(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s*\n+|\s+")
IGNORED = -100


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One question with its right answer and one worked solution, which may contain slips."""

    question: str
    answer: str
    solution: str

    @property
    def problem(self) -> Problem:
        """The same without its solution, as ``tandem data`` reads problems."""
        return Problem(1, ({"role": "user", "content": self.question},), (self.answer,))

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat that asks it, with the instruction to answer in a box."""
        return PromptTemplate().messages(self.problem)


def draw_problem(rng: random.Random, slip_rate: float = 0.0) -> WordProblem:
    """One problem; each step of its solution slips with probability ``slip_rate``."""

    def work_out(result: int) -> int:
        if rng.random() >= slip_rate:
            return result
        return max(1, result + rng.choice(SLIPS))

    first, second = rng.sample(NAMES, 2)
    words = {"first": first, "second": second}
    words |= {"things": rng.choice(OBJECTS), "containers": rng.choice(CONTAINERS)}
    question, *steps = rng.choice(TEMPLATES)
    # There is always enough for what is used.
    base, count, each, used = (rng.randint(*ends) for ends in ((5, 14), (2, 5), (2, 5), (2, 8)))
    product = work_out(count * each)
    total = work_out(base + product)
    left = work_out(total - used)
    numbers = {"base": base, "count": count, "each": each, "used": used}
    numbers |= {"product": product, "total": total, "left": left}
    lines = [step.format(**words, **numbers) for step in steps]
    return WordProblem(
        question.format(**words, **numbers),
        str(base + count * each - used),
        "\n\n".join([*lines, f"The answer is \\boxed{{{left}}}"]),
    )


def draw_distinct(
    count: int, seed: int, *, slip_rate: float = 0.0, without: frozenset[str] = frozenset()
) -> list[WordProblem]:
    """``count`` problems with different questions, none of them in ``without``."""
    rng, drawn = random.Random(seed), dict[str, WordProblem]()
    while len(drawn) < count:
        problem = draw_problem(rng, slip_rate)
        if problem.question not in without:
            drawn.setdefault(problem.question, problem)
    return list(drawn.values())


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


def teach(lesson: Lesson, held_out: Sequence[WordProblem], out: Path) -> None:
    """Teaches a fresh model and saves it to ``out`` as a Hugging Face checkpoint.

    No question of ``held_out`` is taught.
    """
    torch.manual_seed(lesson.seed)
    without = frozenset(problem.question for problem in held_out)
    clean = draw_distinct(lesson.clean_steps * lesson.batch_size, lesson.seed, without=without)
    slipping = draw_distinct(
        lesson.slipping_steps * lesson.batch_size,
        lesson.seed + 1,
        slip_rate=lesson.slip_rate,
        without=without | {problem.question for problem in clean},
    )
    taught = [*clean, *slipping]
    texts = (f"{one.messages[0]['content']}\n{one.solution}" for one in taught[:4000])
    tokenizer = train_tokenizer(texts, lesson.vocab_size)
    model = build_model(lesson, tokenizer)
    _fit(model, tokenizer, taught, lesson)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, shaped like the ones of the Qwen family.

    At most ``vocab_size`` entries, all in use by the model; any text can be encoded.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


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
    return Qwen3ForCausalLM(config)


def _fit(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    taught: Sequence[WordProblem],
    lesson: Lesson,
) -> None:
    """AdamW with warm-up and cosine decay, each problem once; loss on the response tokens."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lesson.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _learning_rate(step, lesson.steps)
    )
    model.train()
    for step in range(lesson.steps):
        batch = taught[step * lesson.batch_size : (step + 1) * lesson.batch_size]
        loss = _response_loss(model, tokenizer, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"Taught {step + 1} of {lesson.steps} steps, loss {loss:.3f}.", flush=True)
    model.eval()


def _learning_rate(step: int, steps: int, warmup: int = 40) -> float:
    """Factor on the peak learning rate."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _response_loss(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: Sequence[WordProblem]
) -> Tensor:
    """Mean cross entropy over the solutions' tokens; the LM head runs only where one is needed."""
    rows, labels = [], []
    for problem in problems:
        prompt = prompt_ids(problem.messages, tokenizer)
        response = [*tokenizer(problem.solution).input_ids, tokenizer.eos_token_id]
        rows.append(torch.tensor(prompt + response))
        labels.append(torch.tensor([IGNORED] * len(prompt) + response))
    ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    targets = pad_sequence(labels, batch_first=True, padding_value=IGNORED)[:, 1:]
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    kept = targets != IGNORED
    return cross_entropy(model.lm_head(hidden[kept]), targets[kept])
