"""The game of ``examples/two_players``: its rules, hostile moves, and what is read of a run."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import players
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch
from game import (
    FEWEST,
    MOST,
    MOVES,
    SKILL,
    Game,
    best_move,
    between,
    mean_win_rate,
    opening,
    weak_player,
    win_rate,
)
from game_result import Result, read_steps
from hypothesis import given
from hypothesis import strategies as st
from match import match
from plan import Plan
from play import ASKED, MOVE_TOKENS, Played, Said, longest_response, play
from start import encode_messages, make_tokenizer, random_game
from with_openrlhf import steps_of


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


def played(stones: int, table: players.Table) -> Played:
    async def speak(token_ids: list[int], asked: Any) -> Said:
        said = table.answer(token_ids, asked)
        return Said(said, [-1.0] * len(said))

    prompt = encode_messages(opening(stones), table.tokenizer)
    return asyncio.run(play(stones, prompt, table.tokenizer, speak))


def test_players_take_turns_until_the_last_stone_is_taken() -> None:
    game = Game(6)
    for word, left, turn in (("three", 3, "junior"), ("two", 1, "senior"), ("one", 0, "junior")):
        assert game.winner is None
        game.say(word)
        assert (game.left, game.turn) == (left, turn)
    assert (game.winner, game.illegal, game.reward) == ("senior", False, 1.0)
    with pytest.raises(ValueError, match="The game is over: the senior has won"):
        game.say("one")


@pytest.mark.parametrize("text", [*players.HOSTILE, None])
@pytest.mark.parametrize("turn", ["senior", "junior"])
def test_player_who_says_no_move_has_lost(text: str | None, turn: Any) -> None:
    game = Game(9, turn)
    game.say(text)
    assert game.illegal
    assert game.winner not in (turn, None)
    assert game.left == 9


def test_more_stones_than_are_left_cannot_be_taken() -> None:
    game = Game(2)
    game.say("three")
    assert (game.winner, game.illegal, game.left) == ("junior", True, 2)


SAID = st.text() | st.sampled_from(sorted(MOVES))


@given(st.lists(SAID, min_size=12, max_size=12), st.integers(1, 12))
def test_every_game_ends_with_one_winner(said: list[str], stones: int) -> None:
    game, moves = Game(stones), iter(said)
    while game.winner is None:
        before, turn, text = game.left, game.turn, next(moves)
        game.say(text)
        legal = text in MOVES and MOVES[text] <= before
        assert game.illegal is not legal
        assert game.left == before - (MOVES[text] if legal else 0)
        assert (game.winner == turn) is (legal and game.left == 0)


def test_best_win_rate_is_that_of_the_best_of_all_strategies() -> None:
    """Every deterministic strategy for up to six stones, against random play, in fractions."""
    most = 6

    def value(strategy: tuple[int, ...], left: int) -> Fraction:
        taken = strategy[left - 1]
        if taken >= left:
            return Fraction(int(taken == left))
        rest = left - taken
        drawn = [one for one in (1, 2, 3) if one <= rest]
        return sum(
            (value(strategy, rest - one) if one < rest else Fraction(0) for one in drawn),
            Fraction(0),
        ) / len(drawn)

    def random_play(left: int) -> dict[str, float]:
        legal = [word for word, taken in MOVES.items() if taken <= left]
        return {word: 1 / len(legal) for word in legal}

    strategies = list(itertools.product((1, 2, 3), repeat=most))
    for left in range(1, most + 1):
        best = max(value(strategy, left) for strategy in strategies)
        assert win_rate(None, random_play, left) == pytest.approx(float(best))
        assert (best_move(left) is None) is (best < 1)


@pytest.mark.parametrize("left", range(1, MOST + 1))
def test_weak_players_play_legally_and_see_the_best_move_at_times(left: int) -> None:
    often = weak_player(left)
    assert sum(often.values()) == pytest.approx(1)
    assert all(MOVES[word] <= left for word in often)
    best = best_move(left)
    others = {rate for word, rate in often.items() if word != best}
    assert len(others) <= 1
    if best is not None:
        assert often[best] == pytest.approx(SKILL + (1 - SKILL) / len(often))


def test_win_rate_of_weak_players_is_what_their_games_come_to() -> None:
    rng, games = random.Random(3), 20_000
    starts = [rng.randint(FEWEST, MOST) for _ in range(games)]
    won = 0
    for stones in starts:
        game = Game(stones)
        while game.winner is None:
            often = weak_player(game.left)
            game.say(rng.choices(list(often), list(often.values()))[0])
        won += game.winner == "senior"
    rate = mean_win_rate(weak_player, weak_player)
    assert won / games == pytest.approx(rate, abs=4 * (rate * (1 - rate) / games) ** 0.5)
    assert mean_win_rate(None, weak_player) > rate


def test_calls_of_a_game_see_all_before_them_and_ask_for_its_player(tokenizer: Any) -> None:
    table = players.Table(tokenizer, ["three", "two", "one"])
    game = played(6, table)
    assert table.asked == [ASKED["senior"], ASKED["junior"], ASKED["senior"]]
    assert ASKED["junior"] == {"extra_args": {"tandem": {"schedule": "junior"}}}
    prompt = encode_messages(opening(6), tokenizer)
    for context, (start, stop) in zip(table.contexts, game.moves, strict=True):
        assert context == prompt + game.token_ids[:start]
        assert game.log_probs[start:stop] == [-1.0] * (stop - start)
    text = f"three<|im_end|>{between(3)}two<|im_end|>{between(1)}one<|im_end|>"
    assert tokenizer.decode(game.token_ids) == text
    assert sum(game.mask) == sum(map(len, table.script)) == -sum(game.log_probs)
    assert game.game.reward == 1.0


def test_text_between_moves_is_what_the_chat_template_writes(tokenizer: Any) -> None:
    asked = [
        *opening(6),
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "4 left."},
    ]
    written = encode_messages(opening(6), tokenizer) + players.move("two", tokenizer)
    assert encode_messages(asked, tokenizer) == written + tokenizer.encode(between(4))


@pytest.mark.parametrize("text", players.HOSTILE)
def test_hostile_move_ends_the_game_and_stays_as_it_was_written(text: str, tokenizer: Any) -> None:
    hostile = players.move(text, tokenizer)
    game = played(9, players.Table(tokenizer, ["one", hostile]))
    assert (game.game.winner, game.game.illegal) == ("senior", True)
    assert game.token_ids[-len(hostile) :] == hostile
    assert len(game.moves) == 2


@pytest.mark.parametrize("cut", [[], ["one"], ["one", "one", "one", "one"]])
def test_move_without_an_end_is_none(cut: list[str], tokenizer: Any) -> None:
    tokens = [token for word in cut for token in tokenizer.encode(word)]
    game = played(9, players.Table(tokenizer, [tokens]))
    assert (game.game.winner, game.game.illegal) == ("junior", True)
    assert game.token_ids == tokens


def test_no_game_is_longer_than_its_bound(tokenizer: Any) -> None:
    slow = [["one"] * MOST, ["one"] * (MOST - 1) + [[tokenizer.eos_token_id + 9] * MOVE_TOKENS]]
    lengths = [len(played(MOST, players.Table(tokenizer, said)).token_ids) for said in slow]
    assert max(lengths) <= longest_response(MOST, tokenizer)
    # It is no more than the ends of the moves longer than the longest game.
    assert longest_response(MOST, tokenizer) <= max(lengths) + MOST * MOVE_TOKENS


def test_taught_games_are_legal_and_only_moves_are_taught(tokenizer: Any) -> None:
    rng = random.Random(1)
    for _ in range(50):
        token_ids, labels = random_game(rng, tokenizer)
        taught = [token for token in labels if token >= 0]
        words = tokenizer.decode(taught).split("<|im_end|>")[:-1]
        text = tokenizer.decode(token_ids)
        game = Game(int(text.split("user\n")[1].split()[0]))
        for word in words:
            game.say(word)
        assert (game.left, game.illegal) == (0, False)
        assert all(label in (-100, token) for token, label in zip(token_ids, labels, strict=True))


class Strategy:
    """Stands for a model that reads how many stones are left and says what it is told to."""

    def __init__(self, tokenizer: Any, word: Any) -> None:
        self.tokenizer, self.word = tokenizer, word

    def generate(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        pad, rows = self.tokenizer.pad_token_id, []
        for ids, mask in zip(input_ids.tolist(), attention_mask.tolist(), strict=True):
            assert [token == pad for token in ids] == [not bit for bit in mask]
            left = int(self.tokenizer.decode(ids).rsplit("user\n", 1)[1].split()[0])
            said = players.move(self.word(left), self.tokenizer)
            rows.append(ids + said + [pad] * (MOVE_TOKENS - len(said)))
        return torch.tensor(rows)


def test_match_of_the_best_player_is_won_wherever_it_can_be(tokenizer: Any) -> None:
    best = Strategy(tokenizer, lambda left: best_move(left) or "one")
    result = match(best, best, tokenizer, repeats=2)
    won = {game.winner for game in result.games[:2]}  # from four stones
    assert won == {"junior"}
    starts = range(FEWEST, MOST + 1)
    assert result.win_rate == sum(start % 4 > 0 for start in starts) / len(starts)
    assert result.illegal == 0


def test_match_is_lost_by_who_makes_an_illegal_move(tokenizer: Any) -> None:
    one, four = (Strategy(tokenizer, lambda _, word=word: word) for word in ("one", "four"))
    assert match(one, four, tokenizer, repeats=1).win_rate == 1
    result = match(four, one, tokenizer, repeats=1)
    assert (result.win_rate, result.illegal) == (0, 1)


def test_every_start_is_played_as_often_as_another() -> None:
    starts = Plan(steps=14, prompts=4).starts()
    assert len(starts) == 56
    assert {starts.count(stones) for stones in range(FEWEST, MOST + 1)} == {8}


def test_steps_are_read_from_a_log_with_colours_and_an_unfinished_line() -> None:
    log = (
        "(actor pid=1) \x1b[36mGlobal step 1: {'reward': 0.5, 'kl': nan}\x1b[0m\n"
        "something else\nGlobal step 2: {'reward': 0.75}\nGlobal step 3: {'rew"
    )
    assert steps_of(log) == [(1, {"reward": 0.5, "kl": None}), (2, {"reward": 0.75})]


def test_result_says_what_each_step_came_to_and_is_kept(tmp_path: Path) -> None:
    rows = [
        {"score": 1.0, "authorship": [1, 1, 0, 0, 0, 1], "tandem_segments": [[5, 0, 2], [6, 3, 6]]},
        {"score": 0.0, "authorship": [1, 1], "tandem_segments": [[7, 0, 2]]},
    ]
    for step in (2, 10):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{step}.jsonl").write_text(lines)
    steps = read_steps(tmp_path)
    assert [step.step for step in steps] == [2, 10]
    assert (steps[0].games, steps[0].win_rate) == (2, 0.5)
    assert (steps[0].senior_tokens, steps[0].junior_tokens) == (2.5, 1.0)
    result = Result("verl", 7, 0.5, 0.9, 0.1, 0.0, 900, 60.0, steps)
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result
