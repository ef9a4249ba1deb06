"""How well each model reads what the other one writes, measured while an engine generates.

Runners say which rows of a step sampled and by whom; what is measured of them is the same for both
runners and both modes.
"""
