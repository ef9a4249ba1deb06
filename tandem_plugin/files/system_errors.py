"""What the system says of a file, with what to do about it."""

from __future__ import annotations

import errno

__all__ = ["told"]

_REMEDIES = {
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path: a part of it is a file.",
    errno.EISDIR: "Give a file, not a folder.",
    errno.EACCES: "Change its permissions, or give another.",
    errno.EPERM: "Change its permissions, or give another.",
    errno.EROFS: "Give a place that can be written to.",
    errno.ENOSPC: "Make room on its disk, or give a place on another.",
    errno.EDQUOT: "Make room on its disk, or give a place on another.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.EINVAL: "Give another.",
}


def told(error: OSError) -> str:
    """Why a file could not be read or written, and what to do: sentences, each with its stop."""
    remedy = _REMEDIES.get(error.errno or 0, "Give another file, or look at its disk.")
    return f"{error.strerror or error}. {remedy}"
