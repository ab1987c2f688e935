"""A flag that ends an evaluation from another thread, read without Python.

llama.cpp asks some hundred times in an evaluation whether to go on, from the thread that computes.
A callback of Python's would take the interpreter's lock each time, from whoever has it. So it is
asked of C's own `atoi`: the flag is a text of one digit, and a number other than 0 says stop. On
two cores no difference was measured, also beside a thread that is never idle.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any


class AbortFlag:
    """Not set until `set()`; for one evaluation."""

    def __init__(self) -> None:
        self._digit = ctypes.create_string_buffer(b"0")

    def set(self) -> None:
        """Have the evaluation end soon. Any thread, at any time."""
        self._digit[0] = b"1"

    @property
    def is_set(self) -> bool:
        return self._digit[0] == b"1"

    @property
    def address(self) -> ctypes.c_void_p:
        """Where `abort_callback` looks; valid as long as the flag is there."""
        return ctypes.cast(self._digit, ctypes.c_void_p)


def abort_callback(kind: Any) -> Any:
    """What reads a flag, as a callback of the library's `kind`: `bool (*)(void *)`."""
    libc = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
    return ctypes.cast(libc.atoi, kind)
