"""What a fork makes lies side by side, and not in the places of what is gone."""

import subprocess
import sys

import pytest

_PROGRAM = """
import gc, os, sys
from services.forked_memory import settle

SIZE, HOLES, MADE = int(sys.argv[1]), 1000, 100
PAGE = os.sysconf("SC_PAGE_SIZE")
there = [bytes(SIZE - 33) for _ in range(40 * HOLES)]
gone = {id(there[number]) for number in range(0, 40 * HOLES, 40)}
del there[::40]
if sys.argv[2] == "settled":
    settle()
made = [bytes(SIZE - 33) for _ in range(MADE)]
print(len(gone & {id(one) for one in made}), len({id(one) // PAGE for one in made}), gc.get_freeze_count())
"""


def made_after(size: int, how: str) -> tuple[int, int, int]:
    """Of 100 new objects of so many bytes: how many took an old place, on how many pages they lie; frozen objects."""
    command = [sys.executable, "-c", _PROGRAM, str(size), how]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    in_old_places, pages, frozen = (int(number) for number in told.split())
    return in_old_places, pages, frozen


@pytest.mark.parametrize("size", [48, 64, 160, 512, 640, 2048])
def test_new_objects_lie_side_by_side(size: int) -> None:
    assert made_after(size, "as it is")[0] > 80, "without it they lie where others were"
    in_old_places, pages, frozen = made_after(size, "settled")
    assert in_old_places == 0
    assert pages <= 100 * (size + 16) // 4096 + 6
    assert frozen > 1000
