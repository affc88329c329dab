"""Which processes an agent's figures count, by the text of /proc."""

import pytest

from bench.processes import cpu_seconds, family, label, parse_pss, parse_stat


def stat(pid: int, parent: int, session: int, name: str = "python", state: str = "S", ticks: str = "10 5 3 2") -> str:
    return f"{pid} ({name}) {state} {parent} {pid} {session} 0 -1 4194560 9 9 9 9 {ticks} 20 0 1 0 77 1000 100 184"


def test_a_stat_line_with_a_name_of_parentheses_and_spaces() -> None:
    process = parse_stat(stat(42, 7, 7, name="a) S 1 (b"))
    assert (process.pid, process.name, process.state) == (42, "a) S 1 (b", "S")
    assert (process.parent, process.session, process.ticks) == (7, 7, 20)


def test_the_family_is_the_session_and_every_descendant() -> None:
    lines = [
        stat(1, 0, 1),
        stat(100, 1, 100),  # the root
        stat(101, 100, 100),
        stat(102, 1, 100),  # an orphan of the session
        stat(103, 101, 103),  # a session of its own, by its parent
        stat(104, 103, 103),
        stat(200, 1, 200),  # a stranger
        stat(1000, 200, 200),
    ]
    assert list(family(map(parse_stat, lines), 100)) == [100, 101, 102, 103, 104]


def test_orphans_are_found_when_the_root_has_gone() -> None:
    assert list(family([parse_stat(stat(102, 1, 100)), parse_stat(stat(5, 1, 5))], 100)) == [102]


def test_cpu_counts_children_that_were_waited_for() -> None:
    lines = [stat(100, 1, 100, ticks="100 50 25 25"), stat(101, 100, 100, ticks="1 1 0 0")]
    assert cpu_seconds(family(map(parse_stat, lines), 100), 100) == pytest.approx(2.02)


def test_pss_is_the_whole_and_not_its_parts() -> None:
    rollup = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 9000 kB\nPss: 2048 kB\nPss_Anon: 1024 kB\n"
    assert parse_pss(rollup) == 2.0
    assert parse_pss(rollup, "Pss_Anon") == 1.0
    with pytest.raises(ValueError, match="Pss"):
        parse_pss("")


def test_a_process_is_called_after_its_service() -> None:
    assert label("python", ["python", "-P", "-m", "services.podsync"]) == "podsync"
    assert label("bulkhead-podsyn", ["kubelet", "--config", "x"]) == "podsync"
    assert label("kubelet", ["/usr/bin/python", "/venv/bin/kubelet"]) == "kubelet"
