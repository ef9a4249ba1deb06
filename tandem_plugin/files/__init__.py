"""Files named by users, and JSON from other programs."""

from tandem_plugin.files.checkpoints import check_model, is_hub_name
from tandem_plugin.files.user_files import (
    ForeignLineError,
    InputFiles,
    WholeLines,
    open_file,
    read_appended,
    read_file,
    replacing,
    system_reason,
    write_file,
)

__all__ = [
    "ForeignLineError",
    "InputFiles",
    "WholeLines",
    "check_model",
    "is_hub_name",
    "open_file",
    "read_appended",
    "read_file",
    "replacing",
    "system_reason",
    "write_file",
]
