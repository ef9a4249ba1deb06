"""What each adapter can do: one description of a backend, of which the documentation has the table.

Each entry says what it stands on: a test that runs it, or the code with which it is rejected. Run
as a program, it prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(frozen=True)
class Runs:
    """It works: by which test, as ``file::function`` below ``integration_tests/adapters``."""

    test: str
    how: str = ""


@dataclass(frozen=True)
class Rejected:
    """It is rejected at startup, with a code of ``refusals.json``."""

    code: str


@dataclass(frozen=True)
class Absent:
    """The trainer itself has nothing of the kind, or has it under another name."""

    why: str


@dataclass(frozen=True)
class Unproven:
    """It is rejected unless ``tandem.unproven`` allows it by this name: no run has shown it."""

    name: str


Entry = Runs | Rejected | Absent | Unproven


@dataclass(frozen=True)
class Backend:
    """One trainer in tandem, in the order of the table's columns."""

    TITLES: ClassVar[tuple[str, ...]] = (
        *("", "one flag", "agent loops", "several outputs", "tools", "environments"),
        *("asynchronous", "LoRA", "lambda_jun", "validation"),
    )
    name: str
    one_flag: Runs
    agent_loops: Entry
    several_outputs: Entry
    tools: Entry
    environments: Entry
    asynchronous: Entry
    lora: Entry
    lambda_jun: Entry
    validation: Runs

    def entries(self) -> list[Entry]:
        """All but the name."""
        return [getattr(self, one.name) for one in fields(self)[1:]]


BACKENDS = (
    Backend(
        "[verl](verl.md)",
        Runs(
            "tandem_verl/test_training.py::test_log_says_that_tandem_is_on",
            "`...vllm.additional_config.tandem.schedule=word`",
        ),
        agent_loops=Runs("tandem_verl/test_agent_loop.py::test_every_call_has_a_seed_of_its_own"),
        several_outputs=Runs(
            "tandem_verl/test_sessions.py::test_every_output_is_trained_on_with_its_own_authors"
        ),
        tools=Runs(
            "tandem_verl/test_agent_loop.py"
            "::test_tool_outputs_and_the_juniors_tokens_contribute_exactly_zero"
        ),
        environments=Absent("by agent loops"),
        asynchronous=Runs(
            "tandem_verl/test_modes.py"
            "::test_authorship_of_every_response_is_the_replay_of_the_whole"
        ),
        lora=Runs("tandem_verl/test_lora.py::test_masks_are_the_replay_and_the_engines_record"),
        lambda_jun=Runs("tandem_verl/test_loss_terms.py::test_every_term_is_there"),
        validation=Runs(
            "tandem_verl/test_training.py::test_senior_and_team_validate_apart",
            "senior, team, both",
        ),
    ),
    Backend(
        "[OpenRLHF](openrlhf.md)",
        Runs(
            "tandem_openrlhf/test_training.py::test_replay_is_the_engines_own_record",
            "`--tandem.schedule word`",
        ),
        agent_loops=Runs(
            "tandem_openrlhf/test_modes.py::test_a_users_agent_of_two_turns_with_zero_0"
        ),
        several_outputs=Absent("one response per prompt and sample"),
        tools=Absent("by agents"),
        environments=Absent("by agents"),
        asynchronous=Runs(
            "tandem_openrlhf/test_modes.py::test_team_keeps_its_schedule_through_partial_rollouts"
        ),
        lora=Rejected("openrlhf-adapter-sync"),
        lambda_jun=Runs(
            "tandem_openrlhf/test_modes.py::test_a_users_agent_of_two_turns_with_zero_0"
        ),
        validation=Runs(
            "tandem_openrlhf/test_modes.py"
            "::test_command_brings_tandem_into_a_submitted_job_beside_another_hook",
            "senior, team, both",
        ),
    ),
    Backend(
        "[TRL](trl.md)",
        Runs(
            "tandem_trl/test_training.py"
            "::test_log_has_the_teams_metrics_and_says_that_tandem_is_on",
            '`tandem_rollouts(schedule="word")`, `--tandem.schedule word`',
        ),
        agent_loops=Absent("by tools and environments"),
        several_outputs=Runs(
            "tandem_trl/test_async_rollouts.py"
            "::test_turns_with_tools_train_on_the_seniors_tokens_and_syncs_reach_the_senior_alone"
        ),
        tools=Runs(
            "tandem_trl/test_tools.py::test_tools_train_on_the_seniors_tokens_of_every_turn"
        ),
        environments=Runs(
            "tandem_trl/test_tools.py::test_environments_and_gmpo_train_on_the_seniors_tokens"
        ),
        asynchronous=Runs(
            "tandem_trl/test_async_rollouts.py::test_environments_train_on_the_seniors_tokens"
        ),
        lora=Runs(
            "tandem_trl/test_training.py::test_adapter_is_sent_to_an_engine_that_has_its_base_once"
        ),
        lambda_jun=Rejected("trl-imitation-unsupported"),
        validation=Runs(
            "tandem_trl/test_training.py::test_the_senior_alone_answers_evaluations",
            "senior, team",
        ),
    ),
    Backend(
        "[SkyRL](skyrl.md)",
        Runs(
            "tandem_skyrl/test_training.py::test_trained_tokens_are_the_engines_record",
            "`--tandem.schedule word`",
        ),
        agent_loops=Runs(
            "tandem_skyrl/test_training.py::test_trained_tokens_are_the_engines_record"
        ),
        several_outputs=Runs(
            "tandem_skyrl/test_training.py::test_step_wise_rows_with_a_share_alone_are_the_engines_record"
        ),
        tools=Absent("by environments"),
        environments=Runs(
            "tandem_skyrl/test_training.py::test_trained_tokens_are_the_engines_record"
        ),
        asynchronous=Runs(
            "tandem_skyrl/test_training.py"
            "::test_asynchronous_trainer_trains_the_engines_record_and_resumes_its_seeds"
        ),
        lora=Rejected("skyrl-adapter-unsupported"),
        lambda_jun=Rejected("skyrl-imitation-unsupported"),
        validation=Runs(
            "tandem_skyrl/test_training.py::test_senior_and_team_answer_the_evaluation",
            "senior, team, both",
        ),
    ),
)


def shown(entry: Entry) -> str:
    """One cell of the table."""
    if isinstance(entry, Runs):
        return entry.how or "yes"
    if isinstance(entry, Unproven):
        return "unproven"
    return "no" if isinstance(entry, Rejected) else entry.why


def table() -> str:
    """The table as Markdown."""
    rows = [[one.name, *map(shown, one.entries())] for one in BACKENDS]
    lines = [Backend.TITLES, ("---",) * len(Backend.TITLES), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


if __name__ == "__main__":
    print(table())
