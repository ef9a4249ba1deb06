"""Plugins: what they register, found and checked once per process, and selected by name."""

from tandem_plugin.plugins.loading import (
    BUILT_IN,
    BrokenPlugin,
    Catalogue,
    Plugin,
    Provider,
    Registration,
    build_catalogue,
    using_plugins,
)

__all__ = [
    "BUILT_IN",
    "BrokenPlugin",
    "Catalogue",
    "Plugin",
    "Provider",
    "Registration",
    "build_catalogue",
    "using_plugins",
]
