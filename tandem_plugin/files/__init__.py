"""Files that a user names, and JSON that others wrote."""

from tandem_plugin.files.user_files import InputFiles, open_file, read_file, replacing, write_file

__all__ = ["InputFiles", "open_file", "read_file", "replacing", "write_file"]
