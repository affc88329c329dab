"""A program of the node may write as much as it likes: only the beginning is kept, and its end is awaited."""

import tracemalloc

import pytest

from services.volume.adapters.programs import run

MAX_PEAK_BYTES = 8 << 20


@pytest.mark.long
def test_of_much_output_the_beginning_is_kept_and_no_more_memory_is_taken() -> None:
    tracemalloc.start()
    try:
        done = run("sh", "-c", "echo first; head -c 67108864 /dev/zero | tr '\\0' x; exit 3")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (done.code, done.output) == (3, f"first {'x' * 994}")
    assert peak < MAX_PEAK_BYTES


def test_output_in_pieces_is_one_line() -> None:
    assert run("sh", "-c", "printf 'a\\n\\303'; printf '\\251 b\\n' >&2").output == "a é b"
