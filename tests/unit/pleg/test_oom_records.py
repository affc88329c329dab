"""The records of the kernel about processes that were killed for lack of memory (node.md 4.17)."""

import time

import pytest

from services.pleg.core.oom_records import OomKill, OomRecords

OF_NODE = (
    "stress-ng invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=1000",
    "CPU: 1 PID: 4242 Comm: stress-ng Not tainted 6.1.0-18-amd64 #1",
    (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/kubepods/podx,task=stress-ng,pid=4242,uid=0"
    ),
    "Out of memory: Killed process 4242 (stress-ng) total-vm:1061992kB, anon-rss:1048792kB, file-rss:0kB, UID:0",
)
OF_CGROUP = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=969",
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,"
        "oom_memcg=/kubepods/podx,task_memcg=/kubepods/podx/c1,task=python3,pid=77,uid=1000"
    ),
    "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB, file-rss:1kB, UID:1000",
)
OF_OLD_KERNEL = (
    "python invoked oom-killer: gfp_mask=0xd0, order=0, oom_adj=0",
    "Task in /kubepods/pody/c2 killed as a result of limit of /kubepods/pody",
    "Killed process 13 (python) total-vm:1kB",
)


@pytest.mark.parametrize(
    ("lines", "kill"),
    [
        (OF_NODE, OomKill(process="stress-ng", pid=4242, limited="/")),
        (OF_CGROUP, OomKill(process="python3", pid=77, limited="/kubepods/podx")),
        (OF_OLD_KERNEL, OomKill(process="python", pid=13, limited="/kubepods/pody")),
    ],
)
def test_a_kill_has_its_process_and_the_cgroup_whose_limit_was_reached(lines: tuple[str, ...], kill: OomKill) -> None:
    records = OomRecords()
    found = [records.take(line) for line in ("usb 1-1: new device", *lines, "usb 1-1: gone")]
    assert [one for one in found if one] == [kill]


def test_only_a_kill_without_a_limited_cgroup_is_of_the_node() -> None:
    assert OomKill(process="a", pid=1).message == "System OOM encountered, victim process: a, pid: 1"
    assert OomKill().message == "System OOM encountered"
    assert OomKill().of_the_node and not OomKill(limited="/kubepods").of_the_node


def test_the_end_of_a_report_whose_begin_was_lost_is_no_kill() -> None:
    assert OomRecords().take(OF_NODE[-1]) is None


@pytest.mark.parametrize(
    "part",
    [
        *("oom-kill:constraint=", "oom-kill:constraint=oom_memcg=", "oom-kill:constraint=oom_memcg=,", "oom_memcg="),
        *("Task in ", "Task in a killed as a result of limit of", "Killed process 1 ", "Killed process 1 (", "1" * 11),
    ],
)
def test_a_record_made_to_be_slow_is_read_in_linear_time(part: str) -> None:
    def seconds(size: int) -> float:
        """CPU time, the least of three."""
        taken = []
        for _ in range(3):
            records, text = OomRecords(), part * (size // len(part))
            records.take(OF_NODE[0])
            begin = time.process_time()
            records.take(text)
            taken.append(time.process_time() - begin)
        return min(taken)

    assert seconds(1 << 13) < 0.01  # bytes of the longest record
