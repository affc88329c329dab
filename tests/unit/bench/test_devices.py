"""The cost of devices: a line for each figure, with the medians of both nodes and the difference."""

from bench.devices import Sample, table


def test_a_line_has_the_medians_of_both_nodes_and_how_much_more_devices_cost() -> None:
    without = [Sample(2.0, 1.0, 160.0), Sample(4.0, 1.2, 170.0), Sample(3.0, 1.1, 165.0)]
    with_devices = [Sample(3.3, 1.1, 165.0), Sample(3.1, 0.9, 165.0), Sample(9.0, 5.0, 165.0)]
    assert [line.split() for line in table(without, with_devices)] == [
        ["medians", "of", "3", "no", "devices", "devices", "more"],
        ["CPU", "of", "the", "starts,", "s", "3.00", "3.30", "+10.0%"],
        ["CPU", "idle,", "per", "minute,", "s", "1.10", "1.10", "+0.0%"],
        ["memory", "without", "files,", "MiB", "165.00", "165.00", "+0.0%"],
    ]
