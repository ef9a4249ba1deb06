"""Who answers a validation, and how what comes of it is named, logged and laid down."""

from __future__ import annotations

import pytest

from tandem_plugin.training.validation import answerers, named, passes


@pytest.mark.parametrize("validation", ["senior", "team"])
def test_one_answerer_has_the_table_and_the_folder_to_itself(validation: str) -> None:
    (alone,) = passes(validation)
    assert alone.answerer == validation
    assert alone.table(["p"], ["r"], [1.0]) == {"inputs": ["p"], "outputs": ["r"], "scores": [1.0]}
    assert alone.folder("dumps") == "dumps"


def test_two_answerers_share_one_table_at_the_last_pass_and_lie_apart() -> None:
    for _ in range(2):  # a second validation begins with an empty table
        senior, team = passes("both")
        assert (senior.answerer, team.answerer) == answerers("both")
        assert senior.table(["p", "q"], ["a", "b"], [0.0, 1.0]) is None
        table = team.table(["p", "q"], ["c", "d"], [1.0, 1.0])
        assert table == {
            "inputs": ("[senior] p", "[senior] q", "[team] p", "[team] q"),
            "outputs": ("a", "b", "c", "d"),
            "scores": (0.0, 1.0, 1.0, 1.0),
        }
        assert [one.folder("dumps") for one in (senior, team)] == ["dumps/senior", "dumps/team"]


def test_table_of_two_without_a_response_is_empty() -> None:
    senior, team = passes("both")
    assert senior.table([], [], []) is None
    assert team.table([], [], []) == {"inputs": (), "outputs": (), "scores": ()}


def test_metrics_of_the_team_have_names_of_their_own() -> None:
    assert named({"pass@1": 0.5}, "senior") == {"pass@1": 0.5}
    assert named({"pass@1": 0.5}, "team") == {"team/pass@1": 0.5}
