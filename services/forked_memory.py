"""Leaves a process's memory so that its forks copy little of it: of a page it writes to, a fork has a copy of its own.

Decides nothing about what is in memory. A new object takes the place of one that is gone, and such places lie one by
one on pages all over the heap; filled before the first fork, they leave what forks make to lie side by side.
"""

import ctypes
import gc
import sys

_SMALL = range(16, 513, 16)  # bytes of the blocks that Python parcels out itself; larger ones come from malloc
_BYTES_HEAD = 33  # bytes of an empty bytes object; a bare object has 16
_NUMBER = 32  # bytes of a number
_POOL, _POOL_HEAD = 16 * 1024, 48  # bytes: in such pieces, with such a head, Python parcels out blocks of one size
_IN_A_ROW = 6  # blocks from the beginning of a piece: it is a new one, no place was left in the others
_MOST_BLOCKS = 5_000  # of one size; where the numbers above are not this Python's, nothing is held
_LARGE = range(64 * 1024, 24, -16)  # bytes asked from malloc
_MOST_HELD = 4 * 2**20  # bytes held in malloc's places, where it is not glibc's and the order says nothing

_held: list[object] = []  # what fills the places; for good


def settle() -> None:
    """Call before the first fork, once everything is imported; beside a collection it costs 40 ms and half a MiB."""
    gc.collect()
    # The cache of looked-up attributes holds their names: to put one in another's place writes to both, wherever they
    # lie, and the imports have filled it with names that no service ever looks up.
    sys._clear_type_cache()
    for size in _SMALL:
        _held.extend(_fill(size))
    _fill_large()
    gc.freeze()  # a collection in a child would write to every object, and so copy every page


def _fill(size: int) -> list[object]:
    """Objects of so many bytes, until they come from a new piece."""
    if size == _NUMBER:  # the numbers below lie between them: as many as a piece holds
        return [float(number) for number in range(_POOL // size)]
    made: list[object] = []
    run = expected = 0
    while len(made) < _MOST_BLOCKS:
        made.append(object() if size < _BYTES_HEAD else bytes(size - _BYTES_HEAD))
        place = id(made[-1]) % _POOL
        run = 1 if place == _POOL_HEAD else run + 1 if run and place == expected else 0
        expected = place + size
        if run == _IN_A_ROW:
            return made
    return []


def _fill_large() -> None:
    """The same for malloc: whatever comes from below the end of what it has used so far is kept."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    end, held = libc.malloc(_LARGE.start), 0
    libc.free(end)
    for size in _LARGE:
        while held < _MOST_HELD:
            place = libc.malloc(size)
            if place is None or end is None or place >= end:
                libc.free(place)
                break
            held += size
