r"""OpenRLHF's reward finds the response in a decoded text, whatever the tokenizer loses.

A right answer is paid, a box of the prompt never; where nothing can be found, an error is raised.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.grading import OUTCOMES, Grader
from tandem_plugin.grading.rewards import openrlhf_response
from tandem_plugin.grading.rewards.openrlhf_response import response_of

pytest.importorskip("sympy")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

ASKED = "What is $17\\cdot 23$?\nReason step by step, and put your answer within \\boxed{}."
SHOTS = (
    "Q: What is $2+3$?\nA: We add.  The answer is \\boxed{391}.\n\nQ: And 4?\nA: \\boxed{4}.\n\n"
)
TURN = "<|im_start|>{}\n{}<|im_end|>\n"
PROMPTS = {
    "chat": f"{TURN.format('user', ASKED)}<|im_start|>assistant\n",
    "chat with a solved turn": TURN.format("system", "Be brief. ")
    + TURN.format("user", "What is 2+3?")
    + TURN.format("assistant", "It is \\boxed{391}.")
    + f"{TURN.format('user', ASKED)}<|im_start|>assistant\n",
    "base": f"{SHOTS}Q: {ASKED}\nA:",
    "base that ends in a box": f"{ASKED}\n\n{SHOTS}",
    "blanks": " \n Q:  What is\t17?  \n\n",
    "other characters": f"Größe: “naïve” … ﬁne ½ \u00d7² Ⅷ, →★ İ 😀\n{SHOTS}{ASKED}\nAntwort:",
    "another script": "问题\uff1a十七乘以二十三等于几\uff1f例\uff1a\\boxed{391}。\n"
    f"{SHOTS}{ASKED}\n答\uff1a",
    "no answer yet": "Solve it. Like this: \\boxed{391}",
    "short": "17*23=",
}
RESPONSES = (
    " We multiply: it is $\\boxed{391}$.",
    "\nFirst \\boxed{5}, then \\boxed{391}",
    "\\boxed 391",
    "I say \\boxed{390}.",
    "no box at all",
    "",
    "4.  The answer is \\boxed{391}",
)
CORPUS = [
    *PROMPTS.values(),
    *RESPONSES,
    "x_{1}^2 <= 3 | {a,b} c ~ d @ e # f % g * h 0123456789",
] * 9
SPECIAL = ["<unk>", "<s>", "</s>"]


def trained(
    model: Any, trainer: Any, before: Any, after: Any, normalizer: Any = None, **eats: bool
):
    """A tokenizer of the corpus without its other script; eats: what special tokens strip."""
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(model)
    core.pre_tokenizer, core.decoder = before, after
    if normalizer is not None:
        core.normalizer = normalizer
    core.train_from_iterator([text for text in CORPUS if "问" not in text], trainer)
    turns = ("<|im_start|>", "<|im_end|>")
    core.add_special_tokens([AddedToken(turn, normalized=False, **eats) for turn in turns])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="</s>")


def of_bytes(normalizer: Any = None, prefix: bool = False, **eats: bool) -> Any:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    before = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return trained(models.BPE(), trainer, before, decoders.ByteLevel(), normalizer, **eats)


def of_pieces(scheme: str, normalizer: Any = None, **eats: bool) -> Any:
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False)
    before, after = (one.Metaspace(prepend_scheme=scheme) for one in (pre_tokenizers, decoders))
    model = models.BPE(unk_token="<unk>", fuse_unk=True)
    return trained(model, trainer, before, after, normalizer, **eats)


def of_unigrams() -> Any:
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    folded = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    return trained(
        models.Unigram(), trainer, pre_tokenizers.Metaspace(), decoders.Metaspace(), folded
    )


def of_word_pieces() -> Any:
    trainer = trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=["<unk>", "</s>"], show_progress=False
    )
    bert = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    before = pre_tokenizers.BertPreTokenizer()
    model = models.WordPiece(unk_token="<unk>")
    return trained(model, trainer, before, decoders.WordPiece(), bert)


def of_characters() -> Any:
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    folded = normalizers.Sequence(
        [
            normalizers.Strip(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+"), " "),
        ]
    )
    whole = pre_tokenizers.Split("\n", "isolated")
    return trained(models.BPE(unk_token="<unk>"), trainer, whole, decoders.Fuse(), folded)


def lower() -> Any:
    return normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])


MADE: dict[str, Callable[[], Any]] = {
    "bytes": of_bytes,
    "bytes, special tokens eat blanks": lambda: of_bytes(lstrip=True, rstrip=True),
    "bytes, NFKC": lambda: of_bytes(normalizers.NFKC()),
    "bytes, NFKC and lower case, prefix space": lambda: of_bytes(lower(), True, rstrip=True),
    "Metaspace always, NFKC": lambda: of_pieces("always", normalizers.NFKC(), lstrip=True),
    "Metaspace first": lambda: of_pieces("first", rstrip=True),
    "Metaspace never": lambda: of_pieces("never"),
    "Unigram": of_unigrams,
    "WordPiece, lower case": of_word_pieces,
    "characters, without accents": of_characters,
}
REAL = ("qwen", "gpt2", "t5")


@cache
def made(name: str) -> Any:
    return MADE[name]()


def real(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if name == "qwen":
        return AutoTokenizer.from_pretrained(str(folder))
    if name == "t5":
        file = str(folder / "tokenizer.json")
        return PreTrainedTokenizerFast(tokenizer_file=file, unk_token="<unk>", eos_token="</s>")
    core = Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|endoftext|>")


@pytest.fixture
def tokenizer(request: pytest.FixtureRequest, real_tokenizer: Callable[[str], Path]) -> Any:
    name = request.param
    return real(name, real_tokenizer(name)) if name in REAL else made(name)


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text=text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("tokenizer", [*REAL, *MADE], indirect=True)
def test_the_verdict_is_that_of_the_response_alone(tokenizer: Any, grader: Grader) -> None:
    for name, prompt in PROMPTS.items():
        whole = ids_of(tokenizer, prompt)
        for cut in {0, len(whole) // 3 if len(whole) > 60 else 0}:
            for response in RESPONSES:
                ids = [*ids_of(tokenizer, response), tokenizer.eos_token_id]
                found = response_of(tokenizer.decode([*whole[cut:], *ids]), prompt)
                alone = tokenizer.decode(ids, skip_special_tokens=True)
                assert found is not None, (name, cut, response)
                verdicts = [grader.grade(text, "391").outcome for text in (found, alone)]
                assert verdicts[0] == verdicts[1], (name, cut, response, found)


@pytest.mark.parametrize("tokenizer", ["bytes, special tokens eat blanks"], indirect=True)
def test_a_right_answer_is_right_by_a_tokenizer_that_eats_blanks(
    tokenizer: Any, grader: Grader
) -> None:
    """The verdicts above are not all ``no_answer``."""
    counts: Counter[str] = Counter()
    for prompt in PROMPTS.values():
        for response in RESPONSES:
            query = tokenizer.decode(ids_of(tokenizer, prompt) + ids_of(tokenizer, response))
            counts[grader.grade(response_of(query, prompt), "391").outcome] += 1
    each = len(PROMPTS)
    assert counts == {"correct": 4 * each, "incorrect": each, "no_answer": 2 * each}


@pytest.mark.parametrize("tokenizer", ["characters, without accents", "Unigram"], indirect=True)
def test_no_box_of_a_prompt_is_taken_for_a_response_where_many_characters_are_lost(
    tokenizer: Any,
) -> None:
    draw = random.Random(5)
    missed = 0
    for _ in range(60):
        shots = "".join(
            f"Q: What is {draw.randint(0, 9)}+{draw.randint(0, 9)}?\nA: \\boxed{{{n}}}.\n\n"
            for n in range(draw.randint(0, 8))
        )
        whole = f"{shots}Q: What is 4+{draw.randint(0, 9)}?" + draw.choice(["\nA:", "", "\n"])
        prompt = "".join(c + draw.choice("é→😀问øﬁ") * (draw.random() < 0.01) for c in whole)
        ids = ids_of(tokenizer, prompt)
        ids = ids[draw.choice([0, draw.randint(0, max(0, len(ids) - 30))]) :]
        for response in ("I do not know", "\nQ: What is 3+4?\nA: \\boxed{77}"):
            found = response_of(tokenizer.decode(ids + ids_of(tokenizer, response)), prompt)
            missed += found is None
            assert found is None or found.count("boxed") == response.count("boxed"), prompt
    assert missed <= 12


def test_a_run_in_tandem_knows_the_tokens_of_the_response() -> None:
    tokenizer = made("bytes")
    prompt, response = ids_of(tokenizer, "\\boxed{391}问"), ids_of(tokenizer, " so \\boxed 391")
    response.append(tokenizer.eos_token_id)
    query = tokenizer.decode(prompt + response)
    known = openrlhf_response.Generated(tokenizer, prompt, response)
    openrlhf_response.GENERATED.set(known)
    try:
        assert response_of(query, "another text") == " so \\boxed 391"
        assert response_of(f"{query} and more", "another text") is None
    finally:
        openrlhf_response.GENERATED.set(None)


@pytest.mark.timeout(60)
def test_nothing_hangs_on_hostile_texts() -> None:
    for prompt, response in (
        ("a" * 20_000 + "?", "b"),
        ("Add. " * 4_000, " " * 500_000 + "5"),
        ("\uff21dd. " * 4_000, "<|" * 200_000),
        ("- " * 4_000, "\n" * 500_000),
    ):
        response_of(prompt[7:] + response, prompt)
        assert response_of(prompt + response, prompt) == response


def reward() -> Any:
    """The reward's file, as OpenRLHF loads it once in each engine's process."""
    from importlib.util import module_from_spec, spec_from_file_location

    from tandem_plugin.grading.rewards import reward_file

    spec = spec_from_file_location("reward_func", reward_file("openrlhf"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward_func


def test_the_reward_grades_the_response_alone() -> None:
    torch = pytest.importorskip("torch")
    prompt = r"An example: \boxed{5}. Now add $2+3$."
    rows = [
        (f"{prompt} It is \\boxed{{5}}.", prompt, "5", "correct"),
        (f"{prompt} I do not know.", prompt, "5", "no_answer"),
        (f"cut{prompt[-30:]}\\boxed{{6}}", prompt[-30:], ["5", "6"], "correct"),
        (f"{prompt} \\boxed{{5}}", prompt, '["5", "6"]', "incorrect"),
        (f"{prompt} \\boxed{{2+3}}", prompt, "5", "copied"),
        (f"{prompt} \\boxed 5<|im_end|>", prompt, "... \n#### 5", "correct"),
        ("x", prompt, "5", "error"),
    ]
    queries, prompts, labels, outcomes = map(list, zip(*rows, strict=True))
    result = reward()(queries, prompts, labels)
    assert result["rewards"].tolist() == [float(one == "correct") for one in outcomes]
    assert result["scores"] is result["rewards"]
    for name in OUTCOMES:
        flags = result["extra_logs"][f"outcome_{name}"]
        assert flags.tolist() == [float(one == name) for one in outcomes]
    assert all(isinstance(value, torch.Tensor) for value in result["extra_logs"].values())


def test_responses_that_are_not_found_raise_and_a_rare_one_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("torch")
    of_run, lost, found = reward(), ("x", "A long prompt.", "5"), ("Add. \\boxed{5}", "Add.", "5")
    for _ in range(3):
        with refused("openrlhf-response-not-found", prompt="A long prompt."):
            of_run(*([value] for value in lost))
    of_run(*(list(value) for value in zip(*[found] * 8, strict=True)))
    caplog.clear()
    for _ in range(3):
        assert of_run(*([value] for value in lost))["extra_logs"]["outcome_error"].tolist() == [1.0]
    of_run(*([value] for value in found))
