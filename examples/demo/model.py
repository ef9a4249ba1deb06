"""What the demo starts from: word problems drawn from a seed, and a model taught on solutions.

The numbers are small on purpose. A solution takes three reasoning steps, separated by blank
lines, and ends with the answer in ``\\boxed{}``.

The texts a model learns from are never perfect. Here they hold *misconceptions*: some products
have one and the same wrong result in most solutions. A model taught on such text reasons in clean
sentences, and its likeliest answer is wrong, so that no lower temperature corrects it. The right
result is there in a minority of solutions, for reinforcement learning to find.
``WordProblem.answer`` is always the right one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from tandem_plugin.lab.data import Problem, PromptTemplate
from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.progress import TimeLeft

NAMES = ("Mia", "Tom", "Ana", "Leo", "Ida", "Max", "Eva", "Ben", "Zoe", "Sam", "Ada", "Kai")
OBJECTS = ("apples", "books", "coins", "shells", "cards", "pens", "stamps", "beads", "nuts", "cups")
CONTAINERS = ("bags", "boxes", "jars", "packs")
FACTORS = range(2, 6)
WRONG_BY = (-2, -1, 1, 2, 10)
"""How far a misconceived product is off."""

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
    """One question with its right answer and one worked solution, which may be wrong."""

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


@dataclass(frozen=True, slots=True)
class Misconceptions:
    """Which products the texts get wrong, how, and how often.

    A misconceived product has its wrong result with probability ``believed``. Behind a wrong
    result, the next step goes on from the right one with probability ``repaired``.
    """

    products: Mapping[tuple[int, int], int]
    """The wrong result by the two factors."""
    believed: float
    repaired: float

    @classmethod
    def draw(cls, share: float, believed: float, repaired: float, seed: int) -> Misconceptions:
        """Wrong results for a ``share`` of all products."""
        rng = random.Random(seed)
        pairs = list(itertools.product(FACTORS, FACTORS))
        chosen = rng.sample(pairs, round(share * len(pairs)))
        wrong = {(a, b): max(1, a * b + rng.choice(WRONG_BY)) for a, b in chosen}
        return cls(MappingProxyType(wrong), believed, repaired)

    def work_out(self, count: int, each: int, rng: random.Random) -> tuple[int, int]:
        """(the product as the first step states it, the number that the second goes on from)."""
        right = count * each
        if (count, each) not in self.products or rng.random() >= self.believed:
            return right, right
        wrong = self.products[count, each]
        return wrong, right if rng.random() < self.repaired else wrong


NO_MISCONCEPTIONS = Misconceptions({}, 0.0, 0.0)


def draw_problem(rng: random.Random, beliefs: Misconceptions = NO_MISCONCEPTIONS) -> WordProblem:
    """One problem, with a solution by someone of these beliefs."""
    first, second = rng.sample(NAMES, 2)
    words = {"first": first, "second": second}
    words |= {"things": rng.choice(OBJECTS), "containers": rng.choice(CONTAINERS)}
    question, multiply, *rest = rng.choice(TEMPLATES)
    # There is always enough for what is used.
    base, used = rng.randint(5, 14), rng.randint(2, 8)
    count, each = rng.choice(FACTORS), rng.choice(FACTORS)
    product, carried = beliefs.work_out(count, each, rng)
    total = base + carried
    left = total - used
    numbers = {"base": base, "count": count, "each": each, "used": used}
    numbers |= {"total": total, "left": left}
    lines = [multiply.format(**words, **numbers, product=product)]
    lines += [step.format(**words, **numbers, product=carried) for step in rest]
    return WordProblem(
        question.format(**words, **numbers),
        str(base + count * each - used),
        "\n\n".join([*lines, f"The answer is \\boxed{{{left}}}"]),
    )


def draw_distinct(
    count: int,
    seed: int,
    beliefs: Misconceptions = NO_MISCONCEPTIONS,
    *,
    without: frozenset[str] = frozenset(),
) -> list[WordProblem]:
    """``count`` problems with different questions, none of them in ``without``."""
    rng, drawn = random.Random(seed), dict[str, WordProblem]()
    while len(drawn) < count:
        problem = draw_problem(rng, beliefs)
        if problem.question not in without:
            drawn.setdefault(problem.question, problem)
    return list(drawn.values())


def questions(problems: Iterable[WordProblem]) -> frozenset[str]:
    """What they ask, to draw others."""
    return frozenset(problem.question for problem in problems)


@dataclass(frozen=True, slots=True)
class Lesson:
    """How the model is built and taught.

    A ``misconceived`` share of the products is wrong in a ``believed`` share of their solutions;
    in a ``repaired`` share of these the next step goes on from the right number all the same. So
    the likeliest solution of about three problems in four is wrong.
    """

    vocab_size: int = 640
    hidden_size: int = 128
    layers: int = 3
    batch_size: int = 32
    steps: int = 400
    misconceived: float = 0.75
    believed: float = 0.65
    repaired: float = 0.15
    learning_rate: float = 3e-3
    seed: int = 7

    def problems(self, held_out: Sequence[WordProblem]) -> list[WordProblem]:
        """What is taught, in order; no question of ``held_out``."""
        shares = (self.misconceived, self.believed, self.repaired)
        beliefs = Misconceptions.draw(*shares, seed=1000 + self.seed)
        count = self.steps * self.batch_size
        return draw_distinct(count, self.seed, beliefs, without=questions(held_out))


def teach(lesson: Lesson, taught: Sequence[WordProblem], out: Path) -> None:
    """Teaches a fresh model and saves it to ``out`` as a Hugging Face checkpoint."""
    torch.manual_seed(lesson.seed)
    texts = (f"{one.messages[0]['content']}\n{one.solution}" for one in taught[:4000])
    tokenizer = train_tokenizer(texts, lesson.vocab_size)
    model = build_model(lesson, tokenizer)
    fit(model, tokenizer, taught, lesson)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, pieces: Regex = PIECES
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, shaped like the ones of the Qwen family.

    At most ``vocab_size`` entries, all in use by the model; any text can be encoded.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, behavior="isolated"),
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
        initializer_range=0.09,  # about 1 / sqrt(hidden_size): learns in half the steps of 0.02
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def fit(
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
    left = TimeLeft(lesson.steps)
    for step in range(lesson.steps):
        batch = taught[step * lesson.batch_size : (step + 1) * lesson.batch_size]
        loss = _response_loss(model, tokenizer, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        left.advance()
        if step % 100 == 99:
            said = f"Taught {step + 1} of {lesson.steps} steps, loss {loss:.3f}"
            print(f"{', '.join(filter(None, (said, left())))}.", flush=True)
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
