"""Which files one process of the queue runs, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from tests.queue.planning import EXPECTED, MIN_ITEM_SECONDS, MIN_LENT_SECONDS, plan, take

_NAMES = st.sampled_from(
    [f"tests/{level}/test_{number}.py" for level in ("unit", "e2e", "e2e/behaviour", "machine") for number in range(9)]
)


def test_the_longest_comes_first_and_short_files_share_a_process() -> None:
    durations = {"tests/e2e/test_a.py": 120.0, "tests/e2e/test_b.py": 300.0, "tests/e2e/test_c.py": 1.0}
    items = plan([*durations, "tests/e2e/test_d.py", "tests/unit/bus/test_e.py"], durations)
    assert [item.files for item in items] == [
        ("tests/e2e/test_b.py",),
        ("tests/e2e/test_a.py",),
        ("tests/e2e/test_c.py", "tests/e2e/test_d.py"),
        ("tests/unit/bus/test_e.py",),
    ]


def test_what_computes_runs_beside_what_waits_and_no_worker_is_idle_while_there_is_anything() -> None:
    durations = {"tests/e2e/test_a.py": 300.0, "tests/process/test_b.py": 200.0, "tests/unit/test_c.py": 60.0}
    items = plan(durations, durations)
    taken = [take(items, computing=computing).files for computing in (True, False, True)]
    assert taken == [("tests/unit/test_c.py",), ("tests/e2e/test_a.py",), ("tests/process/test_b.py",)]
    assert items == []


def test_what_runs_once_more_takes_the_time_that_it_took_so_the_last_time() -> None:
    durations = {"tests/e2e/test_a.py": 300.0, "tests/e2e/test_a.py with TEST_RUNTIME=docker": 40.0}
    (item,) = plan(["tests/e2e/test_a.py"], durations, again="TEST_RUNTIME=docker", marks="docker")
    assert (item.seconds, item.again, item.files) == (40.0, "TEST_RUNTIME=docker", ("tests/e2e/test_a.py",))
    (unknown,) = plan(["tests/e2e/test_a.py"], durations, again="TEST_CONTAINERD=bookworm", marks="versions")
    assert unknown.seconds == EXPECTED["e2e"]


def test_what_shares_a_node_or_a_machine_stays_in_one_process_however_long_it_takes() -> None:
    files = [f"tests/{place}/test_{n}.py" for place in ("e2e/behaviour", "machine") for n in range(20)]
    assert [item.files for item in plan(files, dict.fromkeys(files, 100.0))] == [
        tuple(sorted(files[:20])),
        tuple(sorted(files[20:])),
    ]


def test_files_that_have_one_control_plane_after_the_other_share_a_process_for_longer_and_with_no_others() -> None:
    files = [f"tests/e2e/test_{n}.py" for n in range(9)]
    items = plan(files, dict.fromkeys(files, MIN_LENT_SECONDS / 3 - 1), lent=dict.fromkeys(files[::2], "kind"))
    assert sorted(item.files for item in items) == [
        ("tests/e2e/test_0.py", "tests/e2e/test_2.py", "tests/e2e/test_4.py", "tests/e2e/test_6.py"),
        ("tests/e2e/test_1.py", "tests/e2e/test_3.py"),
        ("tests/e2e/test_5.py", "tests/e2e/test_7.py"),
        ("tests/e2e/test_8.py",),
    ]


@given(st.sets(_NAMES), st.dictionaries(_NAMES, st.floats(0, 1000)))
def test_every_file_runs_once_and_files_that_can_be_apart_are_not_put_together_for_long(
    files: set[str], durations: dict[str, float]
) -> None:
    items = plan(files, durations)
    assert sorted(file for item in items for file in item.files) == sorted(files)
    assert [item.seconds for item in items] == sorted((item.seconds for item in items), reverse=True)
    for item in items:
        assert len({file.rpartition("/")[0] for file in item.files}) == 1
        if item.level == "unit" and len(item.files) > 1:
            assert item.seconds < 2 * MIN_ITEM_SECONDS
