"""The names under which tandem's facts travel through batches."""

__all__ = ["ERROR", "FACTS", "GRADED", "JUNIOR_MASK"]

FACTS = "tandem"
"""What a response says of its authorship: :class:`tandem_plugin.training.facts.Facts`."""

JUNIOR_MASK = "junior_mask"
"""One 0 or 1 a response token: 1 where the loop would train on a token that is the junior's. Only
in runs with the junior-imitation term (:mod:`tandem_plugin.training.imitation`)."""

ERROR = "tandem_error"
"""Why a trajectory failed in tandem, on its way to the trainer process, which stops."""

GRADED = "outcome_"
"""How the names begin under which tandem's reward says, by 0.0 or 1.0, what the outcome was."""
