"""The names under which tandem's facts travel through batches and into rollout dumps."""

__all__ = [
    "AUTHORSHIP",
    "COLUMNS",
    "ERROR",
    "FACTS",
    "FINGERPRINT",
    "GRADED",
    "JUNIOR_MASK",
    "SCHEDULE",
    "SEED",
    "SEGMENTS",
    "TRAINED",
]

AUTHORSHIP = "authorship"
"""One 0 or 1 a response token: 1 where the senior is the author; 0 for the junior's tokens and for
those outside all segments: tool outputs, and what the loop keeps of a call but does not train after
the call's last trained token."""

FACTS = "tandem"
"""What a response says of its authorship: :class:`tandem_plugin.training.facts.Facts`."""

JUNIOR_MASK = "junior_mask"
"""One 0 or 1 a response token: 1 where the loop would train on a token that is the junior's. Only
in runs with the junior-imitation term (:mod:`tandem_plugin.training.imitation`)."""

SEED = "tandem_seed"
"""The tandem seed of the first generate call whose tokens are in the response."""

FINGERPRINT = "tandem_fingerprint"
"""The fingerprint of the rule that decided the authorship."""

SEGMENTS = "tandem_segments"
"""(seed, start, stop) of every generate call with a trained token in the response, from its first
token up to its last trained one: more than one in multi-turn loops."""

TRAINED = "tandem_trained"
"""(start, stop) of the ranges that the agent loop would train, before its mask was narrowed."""

SCHEDULE = "tandem_schedule"
"""The settings of that rule: schedule, parameters (the training step among them), resolver."""

ERROR = "tandem_error"
"""Why a trajectory failed in tandem, on its way to the trainer process, which stops."""

GRADED = "outcome_"
"""How the names begin under which tandem's reward says, by 0.0 or 1.0, what the outcome was."""

COLUMNS = (AUTHORSHIP, SEED, FINGERPRINT, SCHEDULE, SEGMENTS, TRAINED)
"""What every training row carries."""
