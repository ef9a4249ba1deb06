"""Python imports this before anything else in every process whose PYTHONPATH holds this folder."""

import tandem_skyrl.on_cpu  # noqa: F401
