"""Patches of foreign libraries: applied once, when their modules are imported, and verified."""
