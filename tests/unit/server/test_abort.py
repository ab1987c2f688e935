"""The flag that ends an evaluation."""

from __future__ import annotations

import ctypes

from suture.server.engine.abort import AbortFlag, abort_callback


def test_a_flag_is_read_by_c_and_set_from_python() -> None:
    callback = abort_callback(ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p))
    first, second = AbortFlag(), AbortFlag()
    assert not callback(first.address) and not first.is_set
    first.set()
    assert callback(first.address) and first.is_set
    assert not callback(second.address) and not second.is_set
