"""Files named by users, and JSON from other programs."""

from tandem_plugin.files.appended_file import (
    AppendedFile,
    ForeignLineError,
    Longer,
    WholeLines,
    note_of,
    read_appended,
)
from tandem_plugin.files.user_files import (
    InputFiles,
    check_model,
    is_hub_name,
    open_file,
    read_file,
    replacing,
    system_reason,
    write_file,
)

__all__ = [
    "AppendedFile",
    "ForeignLineError",
    "InputFiles",
    "Longer",
    "WholeLines",
    "check_model",
    "is_hub_name",
    "note_of",
    "open_file",
    "read_appended",
    "read_file",
    "replacing",
    "system_reason",
    "write_file",
]
