"""Rollout files: reading them, writing them safely, and the engine that fills them."""
