"""A leak is found, and what is no leak is not: samples made by hand."""

from typing import Any

from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.soak.findings import THREADS_TO_SPARE, check_memory, check_pods, compare, is_empty, memory_by_process
from tests.soak.log_lines import complaints_of
from tests.soak.plan import Expected
from tests.soak.samples import Finding, ProcessSample, Sample
from tests.soak.shapes import Outcome, Shape

UID = "2f5a1498-3305-45c7-a8b7-36bd27459827"
CONTAINER = "ab" * 32
PROCESS = ProcessSample(
    pid=10, handles={"file": 5, "socket:tcp": 2}, threads=6, watches=1, children=0, zombies=0,
    rss=40_000, pss=30_000, anonymous=20_000,
)  # fmt: skip
EMPTY = Sample(0.0, {"status": PROCESS}, {"mounts": frozenset({"/h/kubelet"})}, {"bytes in run": 1000})


def with_process(**changes: Any) -> Sample:
    return replace(EMPTY, processes={"status": replace(PROCESS, **changes)})


def with_things(place: str, *names: str) -> Sample:
    return replace(EMPTY, things={place: frozenset(names)})


def found(after: Sample, before: Sample = EMPTY, *, deep: bool = False) -> list[tuple[str, str]]:
    return [(finding.what, finding.where) for finding in compare(before, after, deep=deep)]


def test_the_same_again_is_no_finding() -> None:
    assert found(EMPTY, deep=True) == []


def test_a_mount_that_stayed_and_one_that_vanished() -> None:
    assert found(with_things("mounts", "/h/kubelet", "/h/kubelet/pods/x")) == [("leak", "mounts")]
    assert found(with_things("mounts")) == [("lost", "mounts")]


def test_one_descriptor_more_is_a_leak_and_one_less_is_none() -> None:
    assert found(with_process(handles={"file": 6})) == [("leak", "status (pid 10) descriptors file")]
    assert found(with_process(handles={"file": 5, "pidfd": 1})) == [("leak", "status (pid 10) descriptors pidfd")]
    assert found(with_process(handles={"file": 4})) == []


def test_a_connection_is_a_leak_once_it_had_time_to_be_closed() -> None:
    after = with_process(handles={"file": 5, "socket:tcp": 11})
    assert found(with_process(handles={"file": 5, "socket:tcp": 10}), deep=True) == [], "a pool"
    assert found(after) == []
    assert found(after, deep=True) == [("leak", "status (pid 10) descriptors socket:tcp")]


def test_a_pool_may_fill_and_not_grow_without_end() -> None:
    assert found(with_process(threads=6 + THREADS_TO_SPARE)) == []
    assert found(with_process(threads=7 + THREADS_TO_SPARE)) == [("leak", "status (pid 10) threads")]


def test_watches_children_and_zombies() -> None:
    after = with_process(watches=2, children=1, zombies=1)
    assert [where for _, where in found(after)] == [
        f"status (pid 10) {what}" for what in ("inotify watches", "children", "zombies")
    ]


def test_a_restarted_process_is_compared_by_name_and_an_absent_one_is_reported() -> None:
    assert found(with_process(pid=11)) == []
    assert found(replace(EMPTY, processes={})) == [("process", "status")]
    assert found(replace(EMPTY, processes={"status": PROCESS, "planted": PROCESS})) == [("process", "planted")]


def test_what_stays_for_a_minute_is_a_leak_only_in_a_deep_rest() -> None:
    for place, name in (
        ("CRI sandboxes", CONTAINER),
        ("containerd snapshots", CONTAINER),
        ("files in the home", f"log/pods/default_a_{UID}"),
        ("files in the home", f"log/containers/a_default_main-{CONTAINER}.log"),
    ):
        before, after = with_things(place), with_things(place, name)
        assert found(after, before) == []
        assert found(after, before, deep=True) == [("leak", place)]
        assert found(before, after, deep=True) == [], "the first rest is not deep, and what it had of pods is to go"


def test_an_image_and_a_file_of_no_pod_count_in_every_rest() -> None:
    layer = "sha256:" + "cd" * 32
    before = with_things("containerd snapshots", layer)
    assert found(with_things("containerd snapshots"), before) == [("lost", "containerd snapshots")]
    before = with_things("files in the home", "run/bus")
    assert found(with_things("files in the home", "run/bus", "run/x.tmp"), before) == [("leak", "files in the home")]


def test_a_node_is_empty_once_nothing_of_a_pod_is_left_but_what_stays_for_a_minute() -> None:
    assert is_empty(with_things("CRI sandboxes", CONTAINER))
    assert not is_empty(with_things("pod directories", UID))
    assert not is_empty(with_things("shims", CONTAINER))


def test_bytes_may_vary_a_little() -> None:
    assert found(replace(EMPTY, amounts={"bytes in run": 100_000})) == []
    assert found(replace(EMPTY, amounts={"bytes in run": 1_000_000})) == [("leak", "bytes in run")]


def test_a_finding_is_one_line_with_all_it_takes_to_look_again() -> None:
    line = Finding("leak", "mounts", "1", "2, new: /h/x").line(7, 3)
    assert line == "leak: mounts: before 1, after 2, new: /h/x (seed 7, round 3)"


def at_minutes(*kib: float, pids: tuple[int, ...] = ()) -> list[Sample]:
    pids = pids or (10,) * len(kib)
    return [
        replace(with_process(anonymous=int(size), pid=pid), at=minute * 60.0)
        for minute, (size, pid) in enumerate(zip(kib, pids, strict=True))
    ]


def test_memory_that_grows_from_rest_to_rest_is_found() -> None:
    growing = at_minutes(*(20_000 + 500 * minute for minute in range(25)))
    [finding] = check_memory(growing)
    assert (finding.what, finding.where) == ("memory", "status (pid 10)")
    assert "+500.0 KiB/min" in finding.after
    assert check_memory(growing, only=["podsync"]) == []


def test_memory_that_goes_up_and_down_or_settles_is_flat() -> None:
    assert check_memory(at_minutes(*(20_000 + 1500 * (minute % 2) for minute in range(25)))) == []
    assert check_memory(at_minutes(20_000, 21_500, *[21_600] * 23)) == []


def test_each_process_is_checked_alone_and_a_new_one_gets_its_warm_up() -> None:
    samples = at_minutes(90_000, 90_000, 15_000, 20_000, 20_000, 20_000, pids=(1, 1, 2, 2, 2, 2))
    assert [[point.kib for point in points] for points in memory_by_process(samples).values()] == [
        [90_000, 90_000],
        [20_000, 20_000, 20_000],
    ]
    assert check_memory(samples) == []


def pod(name: str, phase: str = "Running", *, ready: bool = True, restarts: int = 0, **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, **metadata},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {"name": "main", "restartCount": restarts, "lastState": {"terminated": {"exitCode": 1}}}
            ],
        },
    }  # fmt: skip


def expecting(outcome: Outcome, *hurt: str) -> dict[str, Expected]:
    return {"a": Expected(Shape.PLAIN, 0.0, outcome, set(hurt))}


def test_a_pod_that_is_what_it_should_be() -> None:
    assert check_pods(expecting(Outcome.READY), [pod("a")]) == []
    assert check_pods(expecting(Outcome.READY, "main"), [pod("a", restarts=1)]) == []
    assert check_pods(expecting(Outcome.SUCCEEDED), [pod("a", "Succeeded", ready=False)]) == []
    assert check_pods(expecting(Outcome.CRASHING), [pod("a", ready=False, restarts=4)]) == []


def test_a_pod_that_is_not() -> None:
    for outcome, seen in (
        (Outcome.READY, pod("a", ready=False)),
        (Outcome.READY, pod("a", restarts=1)),
        (Outcome.SUCCEEDED, pod("a", "Failed")),
        (Outcome.FAILED, pod("a", "Running")),
        (Outcome.CRASHING, pod("a", restarts=0)),
    ):
        assert [f.what for f in check_pods(expecting(outcome), [seen])] == ["pod"], outcome
    assert len(check_pods(expecting(Outcome.READY, "main"), [pod("a", restarts=2)])) == 1


def test_a_missing_pod_and_one_too_many() -> None:
    assert check_pods(expecting(Outcome.READY), [])[0].after == "gone"
    [finding] = check_pods({}, [pod("b", deletionTimestamp="2024-01-01T00:00:00Z")])
    assert (finding.where, finding.before, finding.after) == ("b", "deleted", "Running ending")


HEAD = "1121 18:27:54.585620    5439 front_door.py:306]"


def test_severe_lines_and_tracebacks_are_complained_of() -> None:
    lines = [
        f"I{HEAD} fine",
        f"W{HEAD} odd",
        f"E{HEAD} bad",
        "\tTraceback (most recent call last):",
        '\t  File "x.py", line 1, in f',
        f"F{HEAD} worse",
    ]
    assert complaints_of(lines) == [lines[2], lines[3].strip(), lines[5]]


def test_the_warnings_of_asyncio_about_unclosed_objects_are_found() -> None:
    line = f"W{HEAD} Task exception was never retrieved"
    assert complaints_of([line, f"I{HEAD} fine"]) == [line]


def test_an_expected_line_is_ignored_with_its_traceback() -> None:
    lines = [f"E{HEAD} the container runtime does not answer", "\tTraceback (most recent call last):", f"E{HEAD} bad"]
    assert complaints_of(lines) == [lines[2]]
