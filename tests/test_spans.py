"""The text of a response by its authors: whole characters, and a page of HTML for notebooks."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tandem_plugin import Vocabulary
from tandem_plugin.spans import (
    JUNIOR,
    OTHER,
    SENIOR,
    TokenBytes,
    authored_text,
    coloured,
)

PIECE = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(["é", "€", "😀", "a", "�", "\u2028"]).flatmap(
        lambda letter: st.sampled_from([letter.encode()[:k] for k in range(1, 5)])
    ),
    st.sampled_from(["é", "€", "😀", "�"]).flatmap(
        lambda letter: st.sampled_from([letter.encode()[k:] for k in range(1, 4)])
    ),
)


@example([(b"\xed", SENIOR), (b"\xa0", JUNIOR)])
@example([(b"\xed\xa0", SENIOR), (b"\x80", JUNIOR), (b"a", JUNIOR)])
@given(st.lists(st.tuples(PIECE, st.sampled_from([JUNIOR, SENIOR, OTHER])), max_size=30))
def test_text_is_that_of_all_bytes_together_and_its_parts_add_up(tokens: list[tuple[bytes, int]]):
    pieces, authors = [piece for piece, _ in tokens], [author for _, author in tokens]
    authored = authored_text(
        range(len(pieces)), authors, lambda ids: b"".join(pieces[i] for i in ids)
    )
    assert authored.text == b"".join(pieces).decode("utf-8", "replace")
    assert "".join(authored.span_texts) == authored.text
    assert sum(count for _, count in authored.spans) == len(tokens)
    assert all(a[0] != b[0] for a, b in zip(authored.spans, authored.spans[1:], strict=False))
    assert all(piece.text and piece.first <= piece.last for piece in authored.pieces)
    shared = [piece for piece in authored.pieces if piece.first < piece.last]
    assert len({piece.first for piece in shared}) == len(shared)


@given(st.text(alphabet="aé€😀 ", max_size=12), st.data())
def test_each_whole_character_is_given_to_the_authors_of_its_bytes(text: str, data: st.DataObject):
    """Every byte is a token: a character belongs to the spans of its first and its last byte."""
    letters = text.encode()
    authors = [data.draw(st.sampled_from([JUNIOR, SENIOR])) for _ in letters]
    authored = authored_text(letters, authors, bytes)
    span_of_byte = [0] * len(letters)
    for i in range(1, len(letters)):
        span_of_byte[i] = span_of_byte[i - 1] + (authors[i] != authors[i - 1])
    alone = [""] * (span_of_byte[-1] + 1 if letters else 0)
    shared = []
    at = 0
    for letter in text:
        first, last = span_of_byte[at], span_of_byte[at + len(letter.encode()) - 1]
        at += len(letter.encode())
        if first == last:
            alone[first] += letter
        else:
            shared.append((letter, first, last))
    own = ["".join(p.text for p in authored.pieces if p[1:] == (i, i)) for i in range(len(alone))]
    assert own == alone
    assert [tuple(piece) for piece in authored.pieces if piece.first < piece.last] == shared


def test_byte_level_pieces_stand_for_bytes_and_special_tokens_for_their_text():
    vocabulary = Vocabulary(("Ġa", "ÃĤ", "Ċ", "<|im end|>", "", "ðŁ"), "made up")
    as_bytes = TokenBytes(vocabulary)
    assert [as_bytes([i]) for i in range(7)] == [
        b" a", "Â".encode(), b"\n", b"<|im end|>", b"<4>", b"\xf0\x9f", b"<6>",
    ]  # fmt: skip
    assert as_bytes([0, 2, 6]) == b" a\n<6>"


def test_sentence_piece_pieces_stand_for_text_and_fallback_bytes():
    vocabulary = Vocabulary(("▁a", "b", "<0xE2>", "</s>", "▁"), "made up")
    as_bytes = TokenBytes(vocabulary)
    assert [as_bytes([i]) for i in range(5)] == [b" a", b"b", b"\xe2", b"</s>", b" "]


def test_response_in_colours_is_the_escaped_text_underlined_by_author():
    page = coloured(authored_text(b"a<b>", [1, 0, 0, 0], bytes))
    assert ">a</span>" in page
    assert ">&lt;b&gt;</span>" in page
    assert page.index("solid") < page.index("dotted")
