"""The C library's heap: made to keep what is freed, so that work takes the same time again.

By default it gives large freed blocks back to the system, depending on what was freed before; the
next step then takes its memory anew, page by page. Measured on one core of an EPYC, a step of 512
tokens took 188 to 270 ms, as 60 to 33,000 pages came anew; the same batch served by an engine and
timed by a benchmark differed by 10 %. Blocks of more than 32 MiB come anew all the same.
"""

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST_MMAP_THRESHOLD = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)
_NEVER = -1


def keep_freed_memory() -> bool:
    """Let the heap of this process keep freed memory; False where the C library can't be told."""
    if os.name != "posix":
        return False
    try:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    except OSError:
        mallopt = None
    if mallopt is None:
        return False
    is_set = mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    return bool(is_set and mallopt(_M_TRIM_THRESHOLD, _NEVER))
