"""The table of the seconds that checks in machines take."""

from pathlib import Path

from tests.machine.seconds import read_seconds, render

RUN = """\
<testsuites><testsuite>
<testcase classname="tests.machine.test_node" name="test_in_the_machine[systemd-the pods run]" time="120.5">
<properties><property name="seconds" value="2.5"/></properties></testcase>
<testcase classname="tests.machine.test_v2" name="test_these_pass[limits.py-systemd]" time="40.5"><properties>
<property name="seconds of test_one[a]" value="10.0"/><property name="seconds of test_two" value="20.25"/>
</properties></testcase>
<testcase classname="tests.machine.test_cluster" name="test_it_has_booted" time="30.25"/>
<testcase classname="tests.machine.test_cluster" name="test_left_out" time="0.1"><skipped/></testcase>
<testcase classname="tests.unit.test_other" name="test_other" time="1"/>
</testsuite></testsuites>
"""


def test_each_check_has_its_own_seconds_and_those_of_the_last_run(tmp_path: Path) -> None:
    (tmp_path / "1.xml").write_text(RUN)
    (tmp_path / "2.xml").write_text(RUN.replace("30.25", "20.25"))
    found = read_seconds([tmp_path / "1.xml", tmp_path / "2.xml"])
    assert render(found).splitlines() == [
        "| check | seconds |",
        "|---|---|",
        "| **`test_node.py`** | **2** |",
        "| in the machine: systemd-the pods run | 2.5 |",
        "| **`test_v2.py`** | **40** |",
        "| one: a, in limits.py-systemd | 10.0 |",
        "| two, in limits.py-systemd | 20.2 |",
        "| these pass: limits.py-systemd | 10.2 |",
        "| **`test_cluster.py`** | **20** |",
        "| it has booted | 20.2 |",
        "| **all** | **63** |",
    ]
