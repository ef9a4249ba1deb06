"""One response of the page: its text split at handoffs, by the run's own tokenizer."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from statistics import fmean
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import shown
from tandem_plugin.files import is_number, parse_json
from tandem_plugin.grading.extraction import extract_answer
from tandem_plugin.grading.generated import is_generated
from tandem_plugin.lab.rollouts.rollout import Rollout
from tandem_plugin.spans import (
    JUNIOR,
    OTHER,
    SENIOR,
    UNKNOWN,
    UNTRAINED,
    AuthoredText,
    TokenBytes,
    authored_text,
    writers,
)

_TEXTS = ("response", "output")
"""Fields in which ``tandem rollout`` and verl's dumps record a response's text."""


class Decoding:
    """Compares the text that a row records with what its token ids decode to.

    Decoders leave out special tokens, clean up white space and may cut at a stop string: these
    differences are ignored. A run of byte pieces (``<0x0A>``) that is no UTF-8 as a whole may be
    replacement characters as a whole, as Hugging Face's ``ByteFallback`` decodes it. In a row
    without a text, only the range of the token ids is checked.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._known = dict(enumerate(vocabulary.texts()))
        self._special = vocabulary.special or frozenset()
        self._byte_pieces = vocabulary.byte_pieces()

    def mismatch(self, row: Rollout) -> str | None:
        """Why the row is not of this vocabulary, as a sentence; None if it is."""
        recorded = next((v for n in _TEXTS if isinstance(v := row.fields.get(n), str)), None)
        if recorded is None:
            if (largest := max(row.response_ids, default=0)) < len(self._known):
                return None
            return f"The token id {largest} is outside this tokenizer's {len(self._known)} ids."
        expected, text = _compared(recorded), self._text(row.response_ids)
        if text.startswith(expected):
            return None
        ordinary = [i for i in row.response_ids if i not in self._special]
        variants = [ordinary]
        if self._byte_pieces:
            variants += [self._without_torn_runs(ids) for ids in (row.response_ids, ordinary)]
        if any((text := self._text(ids)).startswith(expected) for ids in variants):
            return None
        return f"The row records {shown(expected)}, and its token ids give {shown(text)}."

    def _text(self, ids: Iterable[int]) -> str:
        """The decoded text without the parts on which decoders differ; padding ids give no text."""
        pieces = b"".join(map(self._known.get, ids, repeat(b"")))
        return _compared(pieces.decode("utf-8", "replace"))

    def _without_torn_runs(self, ids: Iterable[int]) -> list[int]:
        """Token ids without the runs of byte pieces that are no UTF-8 as a whole."""
        ids_kept: list[int] = []
        for is_byte, run in groupby(ids, self._byte_pieces.__contains__):
            some = list(run)
            if not is_byte or _is_utf8(b"".join(map(self._known.__getitem__, some))):
                ids_kept += some
        return ids_kept


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _compared(text: str) -> str:
    """Without text on which decoders differ: white space, and bytes that are not a character."""
    return "".join(text.replace("\ufffd", " ").split())


_LOGPROBS = ("senior_logprobs", "junior_logprobs")
"""Fields with the log-probability that each model gave each token, in nats; null where unknown."""
_REWARDS = ("reward", "score")
_GOLDS = ("answer", "gts", "ground_truth")
_PROMPTS = ("prompt", "input", "question", "problem")

_TURN = re.compile(r"^(?:<\|im_start\|>)?(system|developer|user|assistant|tool)\n", re.MULTILINE)


def view_response(
    row: Rollout,
    grade: Mapping[str, Any] | None,
    token_bytes: TokenBytes,
    special: frozenset[int] = frozenset(),
) -> tuple[dict[str, Any], set[str], bytes]:
    """Columns, legend and content of a row with its grade, if there is one.

    Columns: ``reward``, ``outcome``, ``truncated`` (None if that is not known), ``tokens``, those
    that the ``senior`` wrote, those of the ``team`` (with a known author), ``spans``, and the mean
    ``surprise``. Legend: what it must explain of ``shared``, ``other``, ``untrained``,
    ``surprise``. Content: JSON of ``text``, ``facts``, and, as flat lists, ``spans`` (author,
    tokens, length of the text of the span alone), ``shared`` (span, later span, length), and
    ``surprise`` (length of the token's text, the partner's surprise at it), with lengths in UTF-16
    code units and surprises in nats, None where unknown.
    """
    authors = authors_of(row)
    authored = authored_text(row.response_ids, authors, token_bytes)
    graded = row.fields if grade is None else grade
    counts = [0] * (UNTRAINED + 1)
    for author, tokens in authored.spans:
        counts[author] += tokens
    spans, shared = _lengths(authored)
    facts = list(facts_of(row, grade))
    if juniors := [tokens for author, tokens in authored.spans if author == JUNIOR]:
        plural = "" if len(juniors) == 1 else "s"  # a schedule of calls: its calls
        facts.append(f"{len(juniors)} junior span{plural} of {fmean(juniors):.3g} tokens")
    if counts[UNTRAINED]:
        facts.append(f"{counts[SENIOR]:,} tokens trained on")
    surprises = partner_surprises(row, authors)
    content = {"text": authored.text, "facts": facts, "spans": spans, "shared": shared}
    if surprises:
        lengths = token_lengths(row.response_ids, token_bytes)
        content["surprise"] = [n for pair in zip(lengths, surprises, strict=True) for n in pair]
    senior = counts[SENIOR] + counts[UNTRAINED]
    columns = {
        "reward": _reward(graded),
        "outcome": outcome_of(graded),
        "truncated": is_truncated(row, special),
        "tokens": len(row.response_ids),
        "senior": senior,
        "team": senior + counts[JUNIOR],
        "spans": len(authored.spans),
        "surprise": _mean(surprises),
    }
    explained = {
        "shared": shared,
        "other": counts[OTHER] + counts[UNKNOWN],
        "untrained": counts[UNTRAINED],
        "surprise": surprises,
    }
    text = json.dumps(content, separators=(",", ":"))
    return columns, {k for k, v in explained.items() if v}, text.encode()


def _lengths(authored: AuthoredText) -> tuple[list[int], list[int]]:
    alone = [0] * len(authored.spans)
    shared: list[int] = []
    for piece in authored.pieces:
        length = _utf16_length(piece.text)
        if piece.first == piece.last:
            alone[piece.first] += length
        else:
            shared += (piece.first, piece.last, length)
    spans = zip(authored.spans, alone, strict=True)
    return [number for span, length in spans for number in (*span, length)], shared


def authors_of(row: Rollout) -> Sequence[int]:
    """Who wrote each token, by the numbers of :mod:`tandem_plugin.spans`."""
    if row.authorship is None:
        return [SENIOR] * len(row.response_ids)
    if row.seed is None:
        return row.authorship
    authors: list[int] = []
    for segment in row.segments:
        authors += [OTHER] * (segment.start - len(authors))
        marks = row.authorship[segment.start : segment.stop]
        authors += writers(marks, segment.settings or row.settings)
    authors += [OTHER] * (len(row.response_ids) - len(authors))
    for start, stop in row.unknown:
        authors[start:stop] = [UNKNOWN] * (stop - start)
    return authors


def _reward(graded: Mapping[str, Any]) -> float | None:
    """The reward of a row or a grade; some grades have an outcome only."""
    for name in _REWARDS:
        value = graded.get(name)
        if is_number(value) or isinstance(value, bool):
            return float(value)
    return float(graded["outcome"] == "correct") if "outcome" in graded else None


def outcome_of(graded: Mapping[str, Any]) -> str | None:
    """The outcome of a row or a grade, such as ``incorrect``; None if it records none."""
    outcome = graded.get("outcome")
    return outcome[:40] if isinstance(outcome, str) else None


def gold_of(fields: Mapping[str, Any]) -> Any:
    """The right answer that a row records, or several; None if it records none."""
    golds = (fields.get(name) for name in _GOLDS)
    gold = next((value for value in golds if value not in (None, [])), None)
    if isinstance(gold, list) and len(gold) == 1:
        gold = gold[0]
    if isinstance(gold, str) and is_generated(gold):
        with suppress(ValueError, KeyError, TypeError):
            gold = parse_json(gold)["answer"]
    return gold


def answer_in(row: Rollout, grade: Mapping[str, Any] | None) -> Any:
    """What the response answered: as it was graded, or else the content of its last box."""
    answer = row.fields.get("pred") if grade is None else grade.get("answer")
    if answer not in (None, ""):
        return answer
    texts = (row.fields.get(name) for name in _TEXTS)
    text = next((value for value in texts if isinstance(value, str)), "")
    return extract_answer(text).answer


def is_truncated(row: Rollout, special: frozenset[int]) -> bool | None:
    """Whether the response was cut off; None if that is not known.

    A row without ``finish_reason``, such as a trainer's, was cut off unless it ends with a special
    token. special: the ids of those, if the tokenizer tells.
    """
    reason = row.fields.get("finish_reason")
    if isinstance(reason, str):
        return reason == "length"
    if not special or not row.response_ids:
        return None
    return row.response_ids[-1] not in special


def partner_surprises(row: Rollout, authors: Sequence[int]) -> list[float | None]:
    """-log p of each token by the model that did not write it, in nats; empty if not recorded.

    None for a token that neither model wrote. See :func:`wrong_logprobs`.
    """
    senior, junior = (row.fields.get(name) for name in _LOGPROBS)
    if senior is None or junior is None:
        return []
    partners = {SENIOR: junior, UNTRAINED: junior, JUNIOR: senior}
    values = (
        partners[author][i] if author in partners else None for i, author in enumerate(authors)
    )
    return [None if value is None else round(-value, 2) for value in values]


def wrong_logprobs(row: Rollout) -> str:
    """Why the log-probabilities that a row records are not those of its tokens, or nothing."""
    for name in _LOGPROBS:
        values = row.fields.get(name)
        if values is None:
            continue
        if not isinstance(values, list) or not all(v is None or is_number(v) for v in values):
            return f"{name} is not a list of numbers."
        if len(values) != len(row.response_ids):
            return f"The response has {len(row.response_ids)} tokens, {name} {len(values)} numbers."
    return ""


def token_lengths(token_ids: Sequence[int], token_bytes: TokenBytes) -> list[int]:
    """The length of each token's text, in UTF-16 code units.

    A character that several tokens wrote counts for the last of them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lengths = [_utf16_length(decoder.decode(token_bytes([token_id]))) for token_id in token_ids]
    if lengths:
        lengths[-1] += _utf16_length(decoder.decode(b"", final=True))
    return lengths


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2  # as a browser counts


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(sum(numbers) / len(numbers), 4) if numbers else None


def facts_of(row: Rollout, grade: Mapping[str, Any] | None) -> list[str]:
    """What a row and its grade say about the response, in words for people."""
    return list(_facts(row, grade))


def _facts(row: Rollout, grade: Mapping[str, Any] | None) -> Iterable[str]:
    if (gold := gold_of(row.fields)) is not None:
        yield f"gold {_cut(gold)}"
    if outcome := outcome_of(row.fields if grade is None else grade):
        yield f"outcome {outcome}"
    if answer := answer_in(row, grade):
        yield f"answered {_cut(answer)}"
    if row.settings:
        parameters = {k: v for k, v in row.settings.items() if k not in ("schedule", "boundaries")}
        described = [str(row.settings.get("schedule", ""))]
        described += [f"{name}={shown(value)}" for name, value in parameters.items()]
        yield " ".join(described).strip()
    yield "senior alone" if row.seed is None else f"seed {row.seed}"
    if junior := row.fields.get("tandem_junior"):
        yield f"with {_cut(junior)}"


def _cut(value: object) -> str:
    return value if isinstance(value, str) and len(value) < 60 else shown(value)


def prompt_of(fields: Mapping[str, Any]) -> str | list[Any]:
    """The prompt: a text, or the turns of a chat; empty if the row has none."""
    for name in _PROMPTS:
        value = fields.get(name)
        if isinstance(value, (str, list)):
            return value
    return ""


def turns_of(prompt: str | list[Any]) -> list[tuple[str, str]]:
    """(role, text) of each turn; the role is empty for a text that is not a chat.

    A trainer's dump has a chat as text, with each role on a separate line before its turn, after
    ChatML's marks unless special tokens were left out, and the assistant's at the end.
    """
    if isinstance(prompt, list):
        return [_turn(turn) for turn in prompt]
    before, *parts = _TURN.split(prompt)
    if before or parts[-2:-1] != ["assistant"]:
        return [("", prompt)] if prompt else []
    texts = [text.removesuffix("\n").removesuffix("<|im_end|>") for text in parts[1::2]]
    turns = list(zip(parts[::2], texts, strict=True))
    return turns if turns[-1][1] else turns[:-1]


def _turn(turn: object) -> tuple[str, str]:
    if isinstance(turn, Mapping) and isinstance(turn.get("content"), str):
        return str(turn.get("role", ""))[:40], turn["content"]
    return "", json.dumps(turn, ensure_ascii=False, indent=1)
