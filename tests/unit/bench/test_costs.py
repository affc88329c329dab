"""What the counting of the bus wrote, read back, and the tables made of it."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

from bench.costs import Side, bus_table, cpu_table, read_counts
from bench.processes import TICKS


def side(name: str, **given: Any) -> Side:
    return Side(Path("/somewhere") / name, cast(Any, None), None, **given)


def test_counts_are_added_up_from_the_offset_on(tmp_path: Path) -> None:
    file = tmp_path / "status.17"
    file.write_text("decode PodStatus 100\n")
    offsets = {file: file.stat().st_size}
    file.write_text("decode PodStatus 100\ndecode PodStatus 10\ndecode PodStatus 5\nreceived pods.status 20\n")
    (tmp_path / "bulkhead-podsyn.18").write_text("sent pods.status 7\n")
    numbers, sizes = read_counts(tmp_path, offsets)
    assert numbers == {
        ("status", "decode", "PodStatus"): 2,
        ("status", "received", "pods.status"): 1,
        ("podsync", "sent", "pods.status"): 1,
    }
    assert sizes["status", "decode", "PodStatus"] == 15


def test_the_cpu_table_has_a_column_for_each_side_and_a_sum() -> None:
    sides = [
        side("before", ticks={"idle": Counter(status=TICKS, pleg=TICKS)}),
        side("after", ticks={"idle": Counter(status=TICKS // 2)}),
    ]
    rows = [line.split() for line in cpu_table(sides, "idle", "s a minute", [1.0, 2.0])]
    assert rows[0][-2:] == ["before", "after"]
    assert rows[1:] == [["pleg", "1.00", "0.00"], ["status", "1.00", "1.00"], ["all", "2.00", "1.00"]]


def test_the_bus_table_shows_number_and_kib_and_the_status_writes() -> None:
    key = ("status", "decode", "PodStatus")
    one = side("after", bus={"burst": (Counter({key: 3}), Counter({key: 2048}))}, writes=Counter(burst=2))
    rows = [line.split() for line in bus_table([one], "burst")]
    assert rows[1] == ["status", "decode", "PodStatus", "3", "2.0"]
    assert ["all", "decode", "3", "2.0"] in rows
    assert rows[-1] == ["status", "writes", "2"]
