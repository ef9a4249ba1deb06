"""The study's task: chains of arithmetic, worked out in steps, in one of two notations."""
