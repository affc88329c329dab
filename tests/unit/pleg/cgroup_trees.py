"""A pod of one container as cgroup v1 and v2 show it, as files to lay out; each file has the lines a kernel writes."""

from pathlib import Path

from shared.host.cgroup_layout import Hierarchies

UID = "0d8f6c3a-5b1e-4c7f-9a11-2f6b6f1c7e55"
CONTAINER = "3f1c9a"
V1_POD = f"kubepods/burstable/pod{UID}"
V2_POD = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
V2_CONTAINER = f"{V2_POD}/cri-containerd-{CONTAINER}.scope"
PRESSURE = "some avg10=1.50 avg60=0.40 avg300=0.10 total=123456\nfull avg10=0.50 avg60=0.20 avg300=0.00 total=23456\n"
_V1_STAT = """cache 8192
rss 4096
inactive_file 1
pgfault 2
total_cache 50000000
total_rss 41943040
total_mapped_file 1000000
total_swap 65536
total_pgfault 9120
total_pgmajfault 2
total_inactive_file 4194304
total_active_file 2097152
hierarchical_memory_limit 268435456
"""
_V1_CPUACCT = {
    "cpuacct.usage": "12500000000\n",
    "cpuacct.usage_user": "10000000000\n",
    "cpuacct.usage_sys": "2500000000\n",
    "cgroup.procs": "10\n11\n12\n",
}
_V1_CPU = {
    "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 3000000\nnr_bursts 0\nburst_time 0\n",
    "cpu.cfs_quota_us": "20000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.shares": "1024\n",
}
_V1_BLKIO = {
    "blkio.throttle.io_service_bytes_recursive": "8:0 Read 8192\n8:0 Write 4096\n8:0 Total 12288\nTotal 12288\n",
    "blkio.throttle.io_serviced_recursive": "8:0 Read 2\n8:0 Write 1\n8:0 Total 3\nTotal 3\n",
}
_V2_CPU = (
    "usage_usec 12500000\nuser_usec 10000000\nsystem_usec 2500000\n"
    "nr_periods 10\nnr_throttled 4\nthrottled_usec 3000\nnr_bursts 0\nburst_usec 0\n"
)
_V2_STAT = """anon 41943040
file 20971520
kernel 4194304
file_mapped 1000000
inactive_file 4194304
active_file 2097152
pgfault 9120
pgmajfault 2
workingset_refault_anon 0
"""


def lay_out_v1(root: Path) -> Hierarchies:
    """Version 1, with the directories that the cgroupfs driver makes."""
    for path in (V1_POD, f"{V1_POD}/{CONTAINER}"):
        _write(root / "cpuacct" / path, _V1_CPUACCT)
        memory = {
            "memory.stat": _V1_STAT,
            "memory.usage_in_bytes": "62914560\n",
            "memory.limit_in_bytes": "268435456\n" if path == V1_POD else "9223372036854771712\n",
            "memory.memsw.limit_in_bytes": "9223372036854771712\n",
            "memory.max_usage_in_bytes": "104857600\n",
            "memory.failcnt": "7\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        }
        _write(root / "memory" / path, memory)
        _write(root / "cpu" / path, _V1_CPU)
        _write(root / "pids" / path, {"pids.current": "5\n", "pids.max": "100\n"})
        _write(root / "blkio" / path, _V1_BLKIO)
    controllers = {name: root / name for name in ("cpu", "cpuacct", "memory", "pids", "blkio")}
    return Hierarchies(unified=None, by_controller=controllers)


def lay_out_v2(root: Path) -> Hierarchies:
    """Version 2, with the directories that the systemd driver makes."""
    for path in (V2_POD, V2_CONTAINER):
        files = {
            "cpu.stat": _V2_CPU,
            "memory.stat": _V2_STAT,
            "memory.current": "62914560\n",
            "memory.max": "268435456\n" if path == V2_POD else "max\n",
            "memory.swap.current": "65536\n",
            "memory.swap.max": "1048576\n" if path == V2_POD else "max\n",
            "cgroup.procs": "" if path == V2_POD else "10\n11\n12\n",
            "cpu.max": "20000 100000\n" if path == V2_POD else "max 100000\n",
            "cpu.weight": "100\n",
            "memory.peak": "104857600\n",
            "memory.low": "0\n",
            "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n",
            "pids.current": "5\n",
            "pids.max": "max\n",
            "io.stat": "8:0 rbytes=8192 wbytes=4096 rios=2 wios=1 dbytes=0 dios=0\n",
            **{f"{resource}.pressure": PRESSURE for resource in ("cpu", "memory", "io")},
        }
        _write(root / path, files)
    return Hierarchies(unified=root, by_controller={})


def _write(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
