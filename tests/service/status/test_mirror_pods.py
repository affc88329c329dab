"""Mirror pods: the API server shows every static pod of the node, and nothing that is none."""

from pathlib import Path

import pytest

from bus.messages.podsync import PodState
from shared.kube import paths
from shared.kube.interface import PatchType
from shared.model.objects import Object
from tests.fakes.virtual_time import until
from tests.service.status.cluster import MIRROR, POD_PATHS, Cluster

pytestmark = pytest.mark.virtual_time

NAME = "web-n1"


async def begun(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    return cluster


async def mirrored(tmp_path: Path) -> Cluster:
    """A static pod that runs and is shown."""
    cluster = await begun(tmp_path)
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    cluster.publish_status("h1", name=NAME)
    await cluster.live(2)
    assert cluster.shown(NAME)["phase"] == "Running"
    return cluster


def mirror(cluster: Cluster) -> Object:
    pod = cluster.pod(NAME)
    assert pod is not None
    return dict(pod["metadata"])


async def test_a_static_pod_is_shown_with_its_status(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    assert cluster.sent() == ["POST /api/v1/namespaces/default/pods", f"PATCH {NAME}/status"]
    node = cluster.server.get(paths.node("n1"))
    assert node is not None
    assert mirror(cluster)["annotations"][MIRROR] == "h1"
    assert mirror(cluster)["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": True}
    ]
    assert cluster.server.received[-1].body["metadata"]["uid"] == mirror(cluster)["uid"] != "h1"
    assert cluster.is_written("h1")
    await cluster.live(40)
    assert len(cluster.sent()) == 2
    await cluster.stop()


async def test_nothing_is_created_before_there_is_a_node(cluster: Cluster) -> None:
    cluster.server.delete(paths.node("n1"))
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    cluster.publish_status("h1", name=NAME)
    await cluster.live(30)
    assert cluster.sent() == [] and not cluster.is_written("h1")
    cluster.server.put(paths.node("n1"), {})
    await cluster.live(2)
    assert cluster.shown(NAME)["phase"] == "Running" and cluster.is_written("h1")


async def test_a_mirror_that_is_deleted_comes_back(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    for grace in (0, 30):
        before = mirror(cluster)["uid"]
        cluster.server.delete(POD_PATHS + NAME, grace=grace)
        await cluster.live(3)
        assert mirror(cluster)["uid"] != before and "deletionTimestamp" not in mirror(cluster)
        assert cluster.shown(NAME)["phase"] == "Running"
    await cluster.stop()


async def test_an_edited_manifest_replaces_the_mirror_once_the_old_pod_has_ended(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    del cluster.manifests["h1"]
    cluster.manifest("h2")
    cluster.admit("h1", PodState.TERMINATING, name=NAME, source="file")
    cluster.admit("h2", name=NAME, source="file")
    cluster.publish_status("h2", "Pending", name=NAME, ready=False)
    await cluster.live(15)
    assert mirror(cluster)["annotations"][MIRROR] == "h1" and cluster.sent("DELETE") == []
    cluster.admit("h1", PodState.FINISHED, name=NAME, source="file")
    await cluster.live(2)
    assert mirror(cluster)["annotations"][MIRROR] == "h2" and cluster.is_written("h2")
    await cluster.stop()


async def test_the_mirror_goes_with_its_manifest_after_the_pod_has_ended_and_on_nobodys_guess(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    cluster.manifests.clear()
    cluster.admit("h1", PodState.TERMINATING, name=NAME, source="file")
    await cluster.live(15)
    assert cluster.pod(NAME) is not None
    cluster.forget("h1")
    cluster.network.kill("podsync")
    await cluster.stop()
    await cluster.start()
    await cluster.live(15)
    assert cluster.pod(NAME) is not None, "podsync has not marked its list as complete"
    del cluster.statuses_by_uid["h1"]
    await cluster.start_podsync()
    await cluster.live(12)
    assert cluster.pod(NAME) is None
    await cluster.stop()


async def test_a_node_that_registers_again_gets_its_mirrors_again(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    before = mirror(cluster)["uid"]
    cluster.server.delete(paths.node("n1"))
    await cluster.live(5)
    assert mirror(cluster)["uid"] == before
    node = cluster.server.put(paths.node("n1"), {})
    await cluster.live(3)
    assert mirror(cluster)["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert cluster.shown(NAME)["phase"] == "Running" and cluster.sent("POST")[1:] == cluster.sent("POST")[:1]
    await cluster.stop()


async def test_a_lost_answer_makes_no_second_mirror(cluster: Cluster) -> None:
    cluster.watching = False
    cluster.manifest("h1")
    cluster.desired.put("h1", cluster.manifests["h1"])
    cluster.admit("h1", name=NAME, source="file")
    cluster.server.lose_answers(1)
    await cluster.live(3)
    before = mirror(cluster)["uid"]
    await cluster.live(60)
    assert mirror(cluster)["uid"] == before and cluster.sent("DELETE") == []
    assert len(cluster.sent()) < 20


@pytest.mark.long
async def test_a_refusal_is_logged_once_and_tried_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.server.refuse(0, 403)
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    await cluster.live(60)
    assert len([line for line in caplog.messages if "refused with 403" in line]) == 1
    assert 3 < len(cluster.sent()) < 8
    before = len(cluster.sent())
    await cluster.live(900)
    assert 9 <= len(cluster.sent()) - before <= 16, "as the kubelet: at each sync of the pod, every 60 to 90 s"
    cluster.server.up()
    await until(cluster.network, lambda: cluster.pod(NAME) is not None, 91)


async def test_another_manifest_is_mirrored_at_once_after_a_refusal(cluster: Cluster) -> None:
    cluster.server.refuse(0, 403)
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    await cluster.live(600)
    cluster.server.up()
    del cluster.manifests["h1"]
    cluster.forget("h1")
    cluster.manifest("h2")
    cluster.admit("h2", name=NAME, source="file")
    await cluster.live(2)
    assert cluster.pod(NAME) is not None


async def test_a_name_that_a_pod_of_another_node_has_is_logged_as_taken(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    containers = [{"name": "c", "image": "i"}]
    cluster.server.bind({"metadata": {"name": NAME}, "spec": {"containers": containers}}, "another")
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    await cluster.live(5)
    assert f"the name {NAME} is taken in namespace default" in caplog.text


async def test_the_name_of_an_api_pod_is_not_taken_from_it(cluster: Cluster) -> None:
    uid = cluster.create(NAME)
    cluster.manifest("h1")
    cluster.admit("h1", name=NAME, source="file")
    cluster.publish_status("h1", name=NAME)
    await cluster.live(60)
    assert mirror(cluster)["uid"] == uid and MIRROR not in mirror(cluster).get("annotations", {})
    assert cluster.shown(NAME)["phase"] == "Pending" and cluster.sent("PATCH") == []
    assert 3 < len(cluster.sent()) < 30


async def test_a_mirror_that_was_ended_while_its_pod_runs_is_replaced(tmp_path: Path) -> None:
    cluster = await mirrored(tmp_path)
    before = mirror(cluster)["uid"]
    client = cluster.server.client()
    await client.patch(POD_PATHS + NAME + "/status", {"status": {"phase": "Failed"}}, PatchType.MERGE)
    await cluster.live(3)
    assert mirror(cluster)["uid"] != before and cluster.shown(NAME)["phase"] == "Running"
    await cluster.stop()
