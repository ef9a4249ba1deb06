"""A tool for verl's tool agent loop, which loads it from this file's path."""

from verl.tools.function_tool import function_tool


@function_tool("count")
def count(text: str) -> str:
    """Count the letter e.

    Args:
        text: Where to look for it.
    """
    return f"It is there {text.count('e')} times."
