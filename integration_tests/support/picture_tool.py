"""A tool for verl's tool agent loop that answers with a picture."""

from verl.tools.function_tool import function_tool
from verl.tools.schemas import ToolResponse


@function_tool("count")
def count(text: str) -> ToolResponse:
    """Paint the letters e.

    Args:
        text: Where to look for them.
    """
    from support.images import picture

    return ToolResponse(text="Here they are. ", image=[picture(200 + text.count("e"))])
