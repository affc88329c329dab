"""A start without API server: pods run from the encrypted record, and then the API server's list counts."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.kube import paths
from shared.kube.credentials import credentials_path
from shared.kube.interface import ApiStatusError
from shared.model import objects
from tests.fakes.api_server import Received
from tests.service.sources.cluster import NODE, ClusterNode, pod
from tests.service.sources.offline_node import (
    NOTICED_WITHIN,
    SAVED_WITHIN,
    SECRETS,
    USED_WITHIN,
    boot_without_api_server,
    offline_node,
    record_everything,
    recorded,
    write_credentials,
)

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ClusterNode]:
    async with offline_node(tmp_path) as node:
        yield node


async def test_the_last_pods_are_wanted_and_marked_and_the_set_is_not_complete(node: ClusterNode) -> None:
    await record_everything(node)
    before = {uid: one.pod for uid, one in node.desired.state.items()}
    await boot_without_api_server(node)
    assert node.wanted() == recorded(node) == ["db", "job", "web"] and not node.desired.complete
    for uid, pod_before in before.items():  # with the annotation of when it was first seen, and the same spec
        after = node.desired.state[uid].pod
        assert after["spec"] == pod_before["spec"] and after["metadata"] == pod_before["metadata"]
    assert objects.name(node.nodes.state["node"].node) == NODE and not node.nodes.complete
    assert any("3 pods are known from the record of 2023-11-14T" in line for line in node.troubles())


async def test_what_pods_need_comes_from_the_record(node: ClusterNode) -> None:
    node.api.put(
        "/api/v1/namespaces/default/services/kubernetes",
        {
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"clusterIP": "10.0.0.1", "ports": []},
        },
    )
    await record_everything(node)
    await boot_without_api_server(node)
    for name, value in SECRETS.items():
        found = (await node.ask("Secret", name)).object
        assert found is not None and base64.b64decode(found["data"]["password"]).decode() == value
    assert (await node.ask("ConfigMap", "settings", fresh=True)).object is not None
    assert (await node.ask("PersistentVolumeClaim", "data")).object is not None
    assert (await node.ask("PersistentVolume", "pv1", namespace="")).object is not None
    services = await node.services_for("default")
    assert services.synced and [objects.name(one) for one in services.services] == ["kubernetes"]


async def test_an_attachment_is_never_answered_from_the_record(node: ClusterNode) -> None:
    """The volume may be attached to another node by now."""
    await record_everything(node)
    node.api.put("/apis/storage.k8s.io/v1/volumeattachments/csi-1", {"metadata": {"name": "csi-1"}})
    assert (await node.ask("VolumeAttachment", "csi-1", namespace="")).object is not None
    await node.pass_time(SAVED_WITHIN)
    await boot_without_api_server(node)
    assert (await node.ask("VolumeAttachment", "csi-1", namespace="")).object is None


async def test_after_the_return_the_api_servers_list_counts(node: ClusterNode) -> None:
    """One pod stays, one was deleted, one edited, one moved: its successor has another UID on another node."""
    uids = await record_everything(node)
    moved = objects.uid(node.api.bind(pod("moved"), NODE))
    await node.pass_time(SAVED_WITHIN)
    await boot_without_api_server(node)
    assert recorded(node) == ["db", "job", "moved", "web"]
    history = len(node.desired.history)
    node.api.delete(paths.pod("default", "job"), grace=0)
    node.api.delete(paths.pod("default", "moved"), grace=0)
    node.api.bind(pod("moved"), "node2")
    edited = node.api.get(paths.pod("default", "web"))
    assert edited is not None
    image = [{**edited["spec"]["containers"][0], "image": "busybox:2"}]
    node.api.put(paths.pod("default", "web"), {**edited, "spec": {**edited["spec"], "containers": image}})
    node.api.up()
    await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
    assert node.wanted() == ["db", "web"] and recorded(node) == []
    assert node.desired.state[uids["web"]].pod["spec"]["containers"][0]["image"] == "busybox:2"
    after = node.desired.history[history:]
    assert sorted(after) == sorted(
        [f"delete {uids['job']}", f"delete {moved}", f"put {uids['web']}", f"put {uids['db']}"]
    )
    events = [event for event in node.events.state.values() if event.reason == "StartedFromRecord"]
    assert [(event.kind, event.name) for event in events] == [("Node", NODE)]
    assert events[0].message.startswith("4 pods were started from the record of 2023-11-14T")
    assert not any("record" in line for line in node.troubles())


@pytest.mark.long
@pytest.mark.parametrize("fault", ["down", "not ready"])
async def test_the_return_is_noticed_within_seconds_also_after_a_long_outage(node: ClusterNode, fault: str) -> None:
    await record_everything(node)
    await node.kill()
    if fault == "down":
        node.api.down()
    else:
        node.api.refuse(10_000, 503)
    await node.start()
    await node.pass_time(600.0)
    before = node.asked("GET", paths.NODES)
    node.api.up()
    await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
    assert recorded(node) == [] and before <= 600.0 / 2.5 + 2


async def test_requests_right_after_the_start_wait_for_the_record_and_are_not_refused(node: ClusterNode) -> None:
    """The services that send them would repeat them only after a back-off."""
    await record_everything(node)
    await node.kill()
    node.api.down()
    await node.start()
    asking = [asyncio.create_task(node.get_object("Secret", name)) for name in (*SECRETS, "other")]
    await node.pass_time(1.0)
    assert [task.done() for task in asking] == [False] * len(SECRETS) + [True], "nothing is known of the last one"
    await node.pass_time(USED_WITHIN - 1.0)
    assert all(task.done() and task.result().object is not None for task in asking[:-1])


async def test_requests_right_after_the_start_are_answered_when_the_api_server_lists_the_pods(
    node: ClusterNode,
) -> None:
    await record_everything(node)
    await node.kill()
    node.api.pause()
    await node.start()
    asking = asyncio.create_task(node.get_object("Secret", "secret-0"))
    await node.pass_time(1.0)
    assert not asking.done()
    node.api.resume()
    await node.until(asking.done, within=2.0)
    assert asking.result().object is not None and recorded(node) == []


async def test_services_come_from_the_record_until_they_are_listed(node: ClusterNode) -> None:
    """Containers that start right after the return need their variables."""
    await record_everything(node)
    await boot_without_api_server(node)
    node.api.up()
    node.api.slow(lambda received: 20.0 if received.path == paths.SERVICES else 0.0)
    await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
    assert (await node.services_for("default")).synced


async def test_a_pod_that_has_ended_is_not_brought_back_by_an_older_record(node: ClusterNode) -> None:
    await record_everything(node)
    node.api.delete(paths.pod("default", "job"), grace=0)
    await node.until(lambda: node.wanted() == ["db", "web"], within=2.0)
    await boot_without_api_server(node)
    assert node.wanted() == ["db", "web"]


@pytest.mark.parametrize("missing", ["file", "directory"])
async def test_credentials_that_come_late_are_waited_for(node: ClusterNode, missing: str) -> None:
    """An exec plugin may provide them some time after the boot."""
    await record_everything(node)
    await node.kill()
    node.api.down()
    credentials_path(node.config.run_dir).unlink()
    if missing == "directory":
        credentials_path(node.config.run_dir).parent.rmdir()
    await node.start()
    await node.pass_time(20.0)
    assert recorded(node) == []
    write_credentials(node.config.run_dir)
    await node.pass_time(USED_WITHIN + 1.0)
    assert recorded(node) == ["db", "job", "web"]


@pytest.mark.long
async def test_objects_of_the_record_are_not_given_once_it_is_older_than_max_age(tmp_path: Path) -> None:
    async with offline_node(tmp_path, max_age=400.0) as node:
        await record_everything(node)
        await boot_without_api_server(node)
        assert (await node.ask("Secret", "secret-0")).object is not None
        await node.pass_time(400.0)
        assert (await node.ask("Secret", "secret-0", within=60.0)).object is None
        assert recorded(node) == ["db", "job", "web"], "what runs goes on"


@pytest.mark.parametrize("fault", ["hangs", "not ready"])
async def test_an_api_server_that_answers_for_the_node_and_not_for_its_pods_has_not_answered(
    node: ClusterNode, fault: str
) -> None:
    await record_everything(node)
    await node.kill()

    def answer(received: Received) -> float:
        if received.path == paths.PODS and fault == "not ready":
            raise ApiStatusError(503, "ServiceUnavailable", "not ready")
        return 3600.0 if received.path == paths.PODS else 0.0

    node.api.slow(answer)
    await node.start()
    await node.pass_time(USED_WITHIN)
    assert recorded(node) == ["db", "job", "web"] and node.nodes.complete
    node.api.slow(0.0)
    await node.until(lambda: node.desired.complete, within=60.0)
    assert recorded(node) == [] and node.wanted() == ["db", "job", "web"]


async def test_a_slow_api_server_has_answered_while_each_answer_comes_in_time(node: ClusterNode) -> None:
    """4 s for the Node, and 4 s more for its pods."""
    await record_everything(node)
    await node.kill()
    node.api.slow(4.0)
    history = len(node.desired.history)
    await node.start()
    await node.until(lambda: node.desired.complete, within=30.0)
    assert recorded(node) == [] and len(node.desired.history) >= history and node.events.state == {}


async def test_objects_of_the_record_are_not_given_once_the_api_server_refuses_the_node(node: ClusterNode) -> None:
    await record_everything(node)
    await boot_without_api_server(node)
    node.api.up()
    node.api.refuse(10_000_000, 401)
    await node.pass_time(NOTICED_WITHIN + 1.0)
    assert (await node.ask("Secret", "secret-0")).object is None


async def test_a_rotated_secret_is_read_anew_after_the_return(node: ClusterNode) -> None:
    await record_everything(node)
    await boot_without_api_server(node)
    path = f"{paths.referenced('Secret', 'default')}/secret-0"
    node.api.put(path, {"metadata": {"name": "secret-0"}, "data": {"password": "bmV3"}})
    old = (await node.ask("Secret", "secret-0")).object
    assert old is not None and old["data"]["password"] != "bmV3"
    node.api.up()
    await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
    await node.pass_time(3.0)
    new = (await node.ask("Secret", "secret-0")).object
    assert new is not None and new["data"]["password"] == "bmV3"


async def test_an_api_server_that_answers_is_not_overtaken_by_the_record(node: ClusterNode) -> None:
    await record_everything(node)
    await node.kill()
    node.api.delete(paths.pod("default", "job"), grace=0)
    history = len(node.desired.history)
    await node.start()
    await node.pass_time(USED_WITHIN)
    assert node.wanted() == ["db", "web"] and node.desired.complete
    assert len(node.desired.history) >= history and recorded(node) == [] and node.events.state == {}


async def test_an_api_server_that_refuses_the_node_has_answered(node: ClusterNode) -> None:
    await record_everything(node)
    await node.kill()
    node.api.refuse(10_000, 401)
    await node.start()
    await node.pass_time(20.0)
    assert recorded(node) == []


@pytest.mark.parametrize("fault", ["pause", "not ready"])
async def test_an_api_server_that_hangs_or_is_not_ready_has_not_answered(node: ClusterNode, fault: str) -> None:
    await record_everything(node)
    await node.kill()
    if fault == "pause":
        node.api.pause()
    else:
        node.api.refuse(10_000, 503)
    await node.start()
    await node.pass_time(USED_WITHIN)
    assert recorded(node) == ["db", "job", "web"]
