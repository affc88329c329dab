"""Whether memory volumes may be swapped to disk: only on a machine with swap whose tmpfs has no option noswap."""

from pathlib import Path

import pytest

from services.volume.adapters import memory_swap

HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
PARTITION = "/dev/sda2                               partition\t1048572\t\t0\t\t-2\n"


@pytest.mark.parametrize(
    ("swaps", "accepted", "on_disk"),
    [
        (HEADING + PARTITION, False, True),
        (HEADING + PARTITION, True, False),
        (HEADING + PARTITION, None, False),
        (HEADING, False, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_swap_without_the_option_is_a_danger(
    swaps: str | None, accepted: bool | None, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "swaps"
    if swaps is not None:
        file.write_text(swaps)
    monkeypatch.setattr(memory_swap, "tmpfs_accepts", lambda _: accepted)
    assert memory_swap.memory_may_be_on_disk(file) is on_disk


def test_the_kernel_answers_for_any_option() -> None:
    known = memory_swap.tmpfs_accepts("size")  # a flag it is not: the kernel refuses it as one
    assert memory_swap.tmpfs_accepts("no-such-option") is (None if known is None else False)
    assert memory_swap.tmpfs_accepts("noswap") in (True, False, None)


def test_the_question_mounts_nothing() -> None:
    def looks_the_same() -> bool:
        before = Path("/proc/self/mountinfo").read_bytes()
        memory_swap.tmpfs_accepts("noswap")
        return Path("/proc/self/mountinfo").read_bytes() == before

    assert any(looks_the_same() for _ in range(50))  # other processes mount and unmount beside the test
