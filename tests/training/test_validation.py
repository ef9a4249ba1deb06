"""Who answers a validation, and the names of its metrics and dumps."""

from __future__ import annotations

import pytest

from tandem_plugin.training.validation import answerers, dump_folder, named


@pytest.mark.parametrize("validation", ["senior", "team"])
def test_one_answerer_has_the_folder_to_itself(validation: str) -> None:
    (alone,) = answerers(validation)
    assert alone == validation
    assert dump_folder("dumps", validation, alone) == "dumps"


def test_two_answerers_have_folders_and_metrics_apart() -> None:
    senior, team = answerers("both")
    assert dump_folder("dumps", "both", senior) == "dumps/senior"
    assert dump_folder("dumps", "both", team) == "dumps/team"
    assert named({"pass@1": 0.5}, senior) == {"pass@1": 0.5}
    assert named({"pass@1": 0.5}, team) == {"team/pass@1": 0.5}
