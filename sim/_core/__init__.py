"""The compiled core, where it was built: `native` is its module, else None.

The pure Python classes are the reference and do without it.
"""

from types import ModuleType

native: ModuleType | None
try:
    from sim._core import _native as native
except ImportError:
    native = None

__all__ = ["native"]
