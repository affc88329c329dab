"""Observations ask for no more than can have changed, and one odd pod spoils no other."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from cri_api.v1 import api_pb2

from shared.cri.channel import CriChannel
from shared.cri.decode import decode_event, pid_of, restart_count
from shared.cri.interface import PartialObservationError, RuntimeCallError
from shared.cri.lists import Lists
from shared.cri.observe import EXIT_SETTLING_SECONDS, Observer
from shared.model.runtime import ContainerState, SandboxState

READY, NOTREADY = 0, 1
CREATED, RUNNING, EXITED, UNKNOWN = range(4)


class FakeChannel:
    """Answers the four reads from protobuf it is given; `errors` by (method, id)."""

    runtime = None

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.sandboxes: dict[str, Any] = {}
        self.containers: dict[str, Any] = {}
        self.inspected_as: dict[str, int] = {}  # id -> state that an inspection finds, where it is another one
        self.errors: dict[tuple[str, str], RuntimeCallError] = {}
        self.pid = 42

    def sandbox(self, uid: str, state: int = READY, ip: str = "10.0.0.1", label: bool = True) -> None:
        self.sandboxes[f"s-{uid}"] = api_pb2.PodSandboxStatus(
            id=f"s-{uid}",
            metadata=api_pb2.PodSandboxMetadata(name=uid, namespace="default", uid=uid),
            state=cast(Any, state),
            created_at=1,
            network=api_pb2.PodSandboxNetworkStatus(ip=ip),
            labels={"io.kubernetes.pod.uid": uid} if label else {},
        )

    def container(self, uid: str, state: int = RUNNING, **fields: Any) -> None:
        self.containers[f"c-{uid}"] = api_pb2.ContainerStatus(
            id=f"c-{uid}",
            metadata=api_pb2.ContainerMetadata(name="c"),
            state=cast(Any, state),
            created_at=2,
            labels={"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": uid},
            **fields,
        )

    async def call(self, stub: object, method: str, request: Any, timeout: float) -> Any:
        self.calls.append(method)
        self.requests.append(request)
        match method:
            case "ListPodSandbox":
                return api_pb2.ListPodSandboxResponse(
                    items=[
                        api_pb2.PodSandbox(
                            id=s.id, metadata=s.metadata, state=s.state, created_at=s.created_at, labels=s.labels
                        )
                        for s in self.sandboxes.values()
                        if matches(request, s)
                    ]
                )
            case "ListContainers":
                return api_pb2.ListContainersResponse(
                    containers=[
                        api_pb2.Container(
                            id=c.id, pod_sandbox_id=f"s-{c.id[2:]}", metadata=c.metadata, state=c.state, labels=c.labels
                        )
                        for c in self.containers.values()
                        if matches(request, c)
                    ]
                )
            case "PodSandboxStatus":
                self._refuse(method, request.pod_sandbox_id, request.verbose)
                return api_pb2.PodSandboxStatusResponse(
                    status=self.sandboxes[request.pod_sandbox_id], info=self._info(request)
                )
            case _:
                self._refuse(method, request.container_id, request.verbose)
                status = api_pb2.ContainerStatus()
                status.CopyFrom(self.containers[request.container_id])
                status.state = cast(Any, self.inspected_as.get(status.id, status.state))
                return api_pb2.ContainerStatusResponse(status=status, info=self._info(request))

    def _info(self, request: Any) -> dict[str, str]:
        return {"info": f'{{"pid": {self.pid}}}'} if request.verbose else {}

    def _refuse(self, method: str, entry_id: str, verbose: bool) -> None:
        error = self.errors.get((method, entry_id))
        if error is not None and (verbose or error.code != "DeadlineExceeded"):
            raise error


def matches(request: Any, entry: Any) -> bool:
    return all(entry.labels.get(key) == value for key, value in request.filter.label_selector.items())


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
def observer(channel: FakeChannel) -> Observer:
    served = cast(CriChannel, channel)
    return Observer(served, Lists(served, 120.0), 120.0, lambda: channel.now)


def inspections(channel: FakeChannel) -> Counter[str]:
    counted = Counter(method for method in channel.calls if not method.startswith("List"))
    channel.calls.clear()
    return counted


async def test_what_did_not_change_is_not_inspected_again(channel: FakeChannel, observer: Observer) -> None:
    channel.sandbox("u")
    channel.container("u")
    first = await observer.observe()
    assert inspections(channel) == {"PodSandboxStatus": 1, "ContainerStatus": 1}
    again, single = await observer.observe(), await observer.observe("u")
    assert inspections(channel) == {}
    assert first["u"].same_content(again["u"]) and first["u"].same_content(single["u"])
    assert first["u"].containers[0].pid == first["u"].sandboxes[0].pid == 42


async def test_a_new_state_is_inspected(channel: FakeChannel, observer: Observer) -> None:
    channel.sandbox("u")
    channel.container("u")
    await observer.observe()
    channel.container("u", EXITED, exit_code=3)
    channel.sandbox("u", NOTREADY)
    pod = (await observer.observe())["u"]
    assert (pod.containers[0].state, pod.containers[0].exit_code) == (ContainerState.EXITED, 3)
    assert pod.sandboxes[0].state is SandboxState.NOTREADY


async def test_a_ready_sandbox_without_an_address_is_inspected_until_it_has_one(
    channel: FakeChannel, observer: Observer
) -> None:
    channel.sandbox("u", ip="")
    assert (await observer.observe())["u"].sandboxes[0].ips == ()
    channel.sandbox("u")
    assert (await observer.observe())["u"].sandboxes[0].ips == ("10.0.0.1",)


async def test_an_unknown_container_is_inspected_each_time(channel: FakeChannel, observer: Observer) -> None:
    channel.container("u", UNKNOWN)
    await observer.observe()
    await observer.observe()
    assert inspections(channel) == {"ContainerStatus": 2}


async def test_an_exit_is_inspected_once_more_when_it_had_time_to_settle_but_its_message_is_kept(
    channel: FakeChannel, observer: Observer, tmp_path: Path
) -> None:
    """The out-of-memory reason may come after the exit."""
    message = tmp_path / "message"
    message.write_text("bye")
    known: dict[str, Any] = {
        "annotations": {"io.kubernetes.container.terminationMessagePath": "/m"},
        "mounts": [api_pb2.Mount(container_path="/m", host_path=str(message))],
    }
    channel.container("u", EXITED, exit_code=137, reason="Error", **known)
    assert (await observer.observe())["u"].containers[0].termination_message == "bye"
    channel.container("u", EXITED, exit_code=137, reason="OOMKilled", **known)
    message.unlink()
    await observer.observe()
    assert inspections(channel) == {"ContainerStatus": 1}
    channel.now += EXIT_SETTLING_SECONDS
    (container,) = (await observer.observe())["u"].containers
    assert (container.reason, container.termination_message) == ("OOMKilled", "bye")
    channel.now += 100
    await observer.observe()
    assert inspections(channel) == {"ContainerStatus": 1}


async def test_a_container_listed_as_created_that_runs_by_now_has_its_pid(
    channel: FakeChannel, observer: Observer
) -> None:
    channel.container("u", CREATED)
    channel.inspected_as["c-u"] = RUNNING
    assert (await observer.observe())["u"].containers[0].pid == 42
    channel.container("u", RUNNING)
    assert (await observer.observe())["u"].containers[0].pid == 42
    assert inspections(channel) == {"ContainerStatus": 1}


async def test_what_vanished_between_list_and_inspection_is_left_out(channel: FakeChannel, observer: Observer) -> None:
    channel.sandbox("u")
    channel.container("u")
    channel.container("v")
    for entry in ("c-u", "c-v"):
        channel.errors["ContainerStatus", entry] = RuntimeCallError("ContainerStatus", "NotFound", "gone")
    pods = await observer.observe()
    assert set(pods) == {"u"} and pods["u"].containers == ()


async def test_a_pod_that_cannot_be_inspected_does_not_hide_the_others(
    channel: FakeChannel, observer: Observer
) -> None:
    channel.sandbox("good")
    channel.sandbox("bad")
    channel.errors["PodSandboxStatus", "s-bad"] = RuntimeCallError("PodSandboxStatus", "Internal", "no task")
    with pytest.raises(PartialObservationError, match="code = Internal desc = no task") as partial:
        await observer.observe()
    assert set(partial.value.pods) == {"good"} and partial.value.unseen == {"bad"}
    with pytest.raises(RuntimeCallError):
        await observer.observe("bad")
    assert set(await observer.observe("good")) == {"good"}


async def test_a_runtime_that_goes_away_meanwhile_is_not_a_partial_answer(
    channel: FakeChannel, observer: Observer
) -> None:
    channel.sandbox("u")
    channel.errors["PodSandboxStatus", "s-u"] = RuntimeCallError("PodSandboxStatus", "Unavailable", "gone")
    with pytest.raises(RuntimeCallError) as error:
        await observer.observe()
    assert not isinstance(error.value, PartialObservationError)


async def test_a_shim_that_hangs_costs_the_pid_and_not_the_pod(channel: FakeChannel, observer: Observer) -> None:
    channel.sandbox("u")
    channel.errors["PodSandboxStatus", "s-u"] = RuntimeCallError("PodSandboxStatus", "DeadlineExceeded", "slow")
    (sandbox,) = (await observer.observe())["u"].sandboxes
    assert (sandbox.state, sandbox.ips, sandbox.pid) == (SandboxState.READY, ("10.0.0.1",), 0)


async def test_a_sandbox_without_the_labels_is_found_by_its_metadata_in_a_single_look_too(
    channel: FakeChannel, observer: Observer
) -> None:
    channel.sandbox("u", label=False)
    everything = await observer.observe()
    assert everything["u"].same_content((await observer.observe("u"))["u"])


async def test_what_has_no_pod_metadata_is_skipped(channel: FakeChannel, observer: Observer) -> None:
    channel.sandboxes["s"] = api_pb2.PodSandboxStatus(id="s", state=cast(Any, READY))
    channel.containers["c"] = api_pb2.ContainerStatus(id="c", metadata=api_pb2.ContainerMetadata(name="c"))
    assert await observer.observe() == {}


async def test_who_only_ever_looks_at_one_pod_forgets_what_that_pod_has_no_more(
    channel: FakeChannel, observer: Observer
) -> None:
    for uid in ("u", "v"):
        channel.sandbox(uid)
        channel.container(uid, EXITED)
        await observer.observe(uid)
    gone = channel.sandboxes.pop("s-u"), channel.containers.pop("c-u")
    channel.now += EXIT_SETTLING_SECONDS / 2
    assert await observer.observe("u") == {}
    inspections(channel)
    channel.sandboxes["s-u"], channel.containers["c-u"] = gone
    await observer.observe("u")
    await observer.observe("v")
    assert inspections(channel) == {"PodSandboxStatus": 1, "ContainerStatus": 1}, "u's again, and v's not"


async def test_nothing_is_kept_of_pods_that_are_gone(channel: FakeChannel, observer: Observer) -> None:
    for number in range(5):
        uid = f"u{number}"
        channel.sandbox(uid)
        channel.container(uid, EXITED)
        await observer.inspect_sandbox(f"s-{uid}")
        if number % 2:
            await observer.observe(uid)
        channel.sandboxes.clear()
        channel.containers.clear()
        channel.now += 1
        assert await observer.observe(uid if number else None) == {}
        assert not observer._kept and not observer._ids


async def test_what_is_no_longer_listed_is_forgotten(channel: FakeChannel, observer: Observer) -> None:
    channel.sandbox("u")
    await observer.observe()
    kept = channel.sandboxes.pop("s-u")
    channel.now += 1
    assert await observer.observe() == {}
    channel.sandboxes["s-u"] = kept
    inspections(channel)
    await observer.observe()
    assert inspections(channel) == {"PodSandboxStatus": 1}


@pytest.mark.parametrize(
    ("info", "pid"),
    [
        ({"info": '{"pid": 7}'}, 7),
        ({}, 0),
        ({"info": "no json"}, 0),
        ({"info": "[]"}, 0),
        ({"info": '{"pid": "x"}'}, 0),
    ],
)
def test_the_pid_is_read_from_verbose_json_where_there_is_one(info: dict[str, str], pid: int) -> None:
    assert pid_of(info) == pid


def test_the_restart_count_is_the_annotation_or_else_the_attempt() -> None:
    assert restart_count({"io.kubernetes.container.restartCount": "5"}, 2) == 5
    assert restart_count({"io.kubernetes.container.restartCount": "-5"}, 2) == 2
    assert restart_count({}, 2) == 2


def test_an_event_names_its_pod_by_sandbox_or_by_container_or_not_at_all() -> None:
    sandbox = api_pb2.PodSandboxStatus(metadata=api_pb2.PodSandboxMetadata(uid="u"))
    stopped = cast(Any, 2)
    event = decode_event(
        api_pb2.ContainerEventResponse(container_id="c", container_event_type=stopped, pod_sandbox_status=sandbox)
    )
    assert (event.pod_uid, event.container_id, event.type) == ("u", "c", "STOPPED")
    container = api_pb2.ContainerStatus(labels={"io.kubernetes.pod.uid": "v"})
    assert decode_event(api_pb2.ContainerEventResponse(containers_statuses=[container])).pod_uid == "v"
    assert decode_event(api_pb2.ContainerEventResponse(container_id="c")).pod_uid == ""
