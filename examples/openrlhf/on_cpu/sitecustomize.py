"""Python imports this before anything else in every process whose PYTHONPATH holds this folder."""

import openrlhf_on_cpu  # noqa: F401
