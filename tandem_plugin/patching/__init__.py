"""Patches of foreign libraries: applied when their modules are imported, once, and checked for."""
