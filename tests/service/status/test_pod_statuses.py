"""Pod statuses on their way to the API server: once, newest last, and no field of another writer lost."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.status.controllers import pod_statuses
from services.status.core.pod_status_merge import status_patch
from shared.model.objects import Object
from tests.fakes.api_resources import NEWEST, V1_20, OlderServer
from tests.fakes.memory_bus import Action, Delivery
from tests.fakes.virtual_time import until
from tests.service.status.cluster import POD_PATHS, Cluster

pytestmark = pytest.mark.virtual_time

GATE = {"type": "example.com/gate", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def begun(tmp_path: Path, **more: Any) -> Cluster:
    cluster = Cluster(tmp_path, **more)
    await cluster.begin()
    return cluster


async def running_pod(cluster: Cluster, name: str = "web") -> str:
    uid = cluster.create(name)
    cluster.admit(uid, name=name)
    cluster.publish_status(uid, "Pending", name=name, ready=False)
    await cluster.live(1)
    cluster.publish_status(uid, name=name)
    await cluster.live(1)
    assert cluster.shown(name)["phase"] == "Running"
    return uid


def overwrite(cluster: Cluster, **status: Any) -> None:
    pod = cluster.pod()
    assert pod is not None
    cluster.server.put(POD_PATHS + "web", {**pod, "status": {**pod["status"], **status}})


def ready(status: Object) -> str:
    return str(next(c["status"] for c in status["conditions"] if c["type"] == "Ready"))


async def test_a_status_is_written_once_and_confirmed(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    assert cluster.sent() == ["PATCH web/status"] * 2
    body = cluster.server.received[-1].body
    assert body["metadata"]["uid"] == uid and "containers" not in str(body)
    assert cluster.is_written(uid)
    await cluster.live(40)
    assert len(cluster.sent()) == 2, "what is equal costs nothing"


async def test_what_has_not_changed_is_not_compared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Object] = []

    def counted(api: Object, wanted: Object, *, now: str) -> Object | None:
        compared.append(wanted)
        return status_patch(api, wanted, now=now)

    monkeypatch.setattr(pod_statuses, "status_patch", counted)
    cluster = await begun(tmp_path)
    uid = await running_pod(cluster)
    await cluster.live(1)
    compared.clear()
    await cluster.live(40)
    assert compared == []
    cluster.publish_status(uid, ready=False)
    await cluster.live(1)
    assert compared and ready(cluster.shown()) == "False"
    await cluster.stop()


@pytest.mark.parametrize("server", [NEWEST, V1_20], ids=["newest", "1.20"])
async def test_a_write_that_the_watch_shows_is_not_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: OlderServer
) -> None:
    compared: list[str] = []

    def counted(api: Object, wanted: Object, *, now: str) -> Object | None:
        compared.append(api["metadata"]["resourceVersion"])
        return status_patch(api, wanted, now=now)

    monkeypatch.setattr(pod_statuses, "status_patch", counted)
    cluster = await begun(tmp_path, drops=server)
    uid = await running_pod(cluster)
    compared.clear()
    cluster.publish_status(uid, ready=False, hostIPs=[{"ip": "10.0.0.1"}])
    await cluster.live(2)
    assert ready(cluster.shown()) == "False"
    assert len(compared) == len(set(compared)) == 2, "before the write, and its answer"
    await cluster.stop()


async def test_what_others_write_stays_and_what_is_ours_is_written_again(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    overwrite(cluster, conditions=[GATE], phase="Pending")
    await cluster.live(1)
    assert cluster.shown()["phase"] == "Running" and ready(cluster.shown()) == "True"
    cluster.publish_status(uid, ready=False)
    await cluster.live(1)
    assert GATE in cluster.shown()["conditions"] and ready(cluster.shown()) == "False"
    assert cluster.sent("GET") == []


async def test_what_an_older_server_drops_is_sent_once_per_change(tmp_path: Path) -> None:
    cluster = await begun(tmp_path, drops=V1_20)
    uid = cluster.create("web")
    container = {"name": "c", "ready": True, "user": {"linux": {"uid": 0}}, "volumeMounts": [{"name": "v"}]}
    newer: Object = {"observedGeneration": 1, "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}], "resources": {}}
    cluster.admit(uid)
    cluster.publish_status(uid, containerStatuses=[container], **newer)
    await cluster.live(45)
    assert cluster.sent() == ["PATCH web/status"]
    assert "hostIPs" not in cluster.shown()
    cluster.publish_status(uid, containerStatuses=[{**container, "ready": False}], **newer)
    await cluster.live(30)
    assert cluster.sent() == ["PATCH web/status"] * 2
    overwrite(cluster, hostIP="10.9.9.9")
    await cluster.live(30)
    assert cluster.sent() == ["PATCH web/status"] * 3 and cluster.shown()["hostIP"] == "10.0.0.1"
    await cluster.stop()


async def test_after_a_lost_answer_the_object_is_read_before_anything_is_written(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    cluster.watching = False
    cluster.server.lose_answers(1)
    cluster.publish_status(uid, ready=False)
    await cluster.live(0.1)
    assert ready(cluster.shown()) == "False"
    cluster.publish_status(uid, ready=True)  # equal to what the watch still shows
    await cluster.live(2)
    assert ready(cluster.shown()) == "True" and cluster.is_written(uid)
    assert cluster.sent()[-2:] == ["GET web", "PATCH web/status"]


@pytest.mark.long
async def test_an_outage_costs_few_requests_and_ends_within_ten_seconds(cluster: Cluster) -> None:
    names = [f"p{number}" for number in range(30)]
    uids = {name: cluster.create(name) for name in names}
    for name, uid in uids.items():
        cluster.admit(uid, name=name)
        cluster.publish_status(uid, name=name)
    await cluster.live(2)
    cluster.server.pause()
    for _ in range(3):
        for name, uid in uids.items():
            cluster.publish_status(uid, name=name, ready=False)
            cluster.publish_status(uid, name=name, ready=True, message="newest")
        await cluster.live(20)
    cluster.server.resume()

    def converged() -> bool:
        return all(cluster.is_written(uid) for uid in uids.values())

    await until(cluster.network, converged, 10)
    assert {cluster.shown(name)["message"] for name in names} == {"newest"}
    before = len(cluster.sent())
    cluster.server.down()
    cluster.publish_status(uids["p0"], name="p0", ready=False)
    await cluster.live(30)
    assert len(cluster.sent()) == before
    cluster.server.up()
    await until(cluster.network, converged, 10)


async def test_a_server_that_asks_for_time_gets_it(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    before = len(cluster.sent())
    cluster.server.refuse(1, retry_after=20.0)
    cluster.publish_status(uid, ready=False)
    await cluster.live(19)
    assert len(cluster.sent()) == before + 1
    await cluster.live(3)
    assert cluster.is_written(uid) and len(cluster.sent()) <= before + 3


async def test_one_refused_pod_keeps_no_other_waiting_and_is_logged_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    uid = await running_pod(cluster)
    cluster.server.bind(
        {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, "elsewhere"
    )
    cluster.watching = False
    cluster.publish_status(uid, ready=False)
    other = cluster.create("other")
    cluster.desired.put(other, cluster.desired.get(uid) or pytest.fail("the pod is not shown"))
    cluster.watching = True
    await cluster.live(5)
    cluster.publish_status(other, name="other")
    await cluster.live(5)
    assert cluster.is_written(other) and not cluster.is_written(uid)
    refused = [line for line in caplog.messages if "spec.nodeName set to itself" in line]
    assert len(refused) == 1 and len(cluster.sent()) < 12


async def test_a_status_never_goes_to_another_pod_of_the_same_name(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    cluster.watching = False
    cluster.server.delete(POD_PATHS + "web", grace=0)
    cluster.create("web")
    cluster.publish_status(uid, "Failed", ready=False)
    await cluster.live(5)
    assert cluster.shown()["phase"] == "Pending" and not cluster.is_written(uid)
    cluster.watching = True
    await cluster.live(15)
    assert cluster.shown()["phase"] == "Pending"


async def test_a_phase_never_replaces_an_end_that_the_watch_has_not_shown(cluster: Cluster) -> None:
    uid = cluster.create("web")
    cluster.admit(uid)
    cluster.publish_status(uid, "Pending", ready=False)
    await cluster.live(1)
    cluster.watching = False
    overwrite(cluster, phase="Failed", reason="Evicted")
    cluster.publish_status(uid, "Running")
    await cluster.live(2)
    assert (cluster.shown()["phase"], cluster.shown()["reason"]) == ("Failed", "Evicted")
    assert ready(cluster.shown()) == "False"


async def test_restarts_of_either_process_write_nothing_old_and_nothing_twice(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    await cluster.stop()
    cluster.publish_status(uid, "Failed", ready=False, reason="Error")
    await cluster.start()
    await cluster.live(2)
    assert cluster.shown()["phase"] == "Failed" and cluster.is_written(uid)
    before = cluster.sent("PATCH")
    cluster.network.kill("podsync")
    await cluster.live(5)
    await cluster.start_podsync()
    await cluster.live(15)
    await cluster.stop()
    cluster.network.kill("sources")
    await cluster.start()
    await cluster.live(5)
    await cluster.start_sources()
    await cluster.live(15)
    assert cluster.sent("PATCH") == before and cluster.is_written(uid)


async def test_without_sources_the_api_server_is_asked_first(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    await cluster.stop()
    cluster.network.kill("sources")
    overwrite(cluster, conditions=[GATE])
    cluster.publish_status(uid, ready=False)
    await cluster.start()
    await cluster.live(25)
    assert GATE in cluster.shown()["conditions"] and ready(cluster.shown()) == "False"
    assert cluster.is_written(uid) and cluster.sent("GET") == ["GET web"]


async def test_lost_and_repeated_news_between_the_processes_change_nothing(cluster: Cluster) -> None:
    turn = 0

    def action(delivery: Delivery) -> Action:
        nonlocal turn
        turn += delivery.stream != "beats"
        return (
            (Action.DELIVER, Action.DROP, Action.DUPLICATE)[turn % 3] if delivery.stream != "beats" else Action.DELIVER
        )

    cluster.network.action = action
    uid = cluster.create("web")
    cluster.admit(uid)
    for number in range(20):
        cluster.publish_status(uid, ready=number % 2 == 0, message=str(number))
        await cluster.live(0.3)
    await cluster.live(5)
    assert cluster.shown()["message"] == "19" and cluster.is_written(uid)


async def test_the_api_object_goes_only_after_the_pod_has_finished(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    cluster.server.delete(POD_PATHS + "web", grace=30)
    cluster.admit(uid, PodState.TERMINATING)
    await cluster.live(2)
    cluster.publish_status(uid, "Failed", ready=False)
    cluster.admit(uid, PodState.TERMINATED)
    await cluster.live(12)
    assert cluster.shown()["phase"] == "Failed" and cluster.sent("DELETE") == []
    cluster.admit(uid, PodState.FINISHED)
    await cluster.live(1)
    assert cluster.pod() is None and cluster.sent("DELETE") == ["DELETE web"]
    assert cluster.server.received[-1].body["preconditions"] == {"uid": uid}


async def test_nothing_is_deleted_on_the_word_of_a_podsync_that_is_away_or_does_not_know_yet(cluster: Cluster) -> None:
    await cluster.stop()
    cluster.create("web", phase="Failed")
    cluster.server.put(POD_PATHS + "web", {**(cluster.pod() or {}), "metadata": {"finalizers": ["example.com/x"]}})
    cluster.server.delete(POD_PATHS + "web")
    cluster.network.kill("podsync")
    await cluster.start()
    await cluster.start_podsync(complete=False)
    await cluster.live(15)
    assert cluster.sent("DELETE") == []
    cluster.statuses.mark_complete()
    cluster.admitted.mark_complete()
    await cluster.live(30)
    assert cluster.sent() == ["DELETE web"], "once: the finalizer holds it"


async def test_a_deletion_whose_answer_is_lost_is_repeated(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    cluster.publish_status(uid, "Succeeded", ready=False)
    cluster.admit(uid, PodState.FINISHED)
    await cluster.live(1)
    cluster.server.put(POD_PATHS + "web", {**(cluster.pod() or {}), "metadata": {"finalizers": ["example.com/x"]}})
    cluster.server.delete(POD_PATHS + "web")
    cluster.server.lose_answers(1)
    await cluster.live(15)
    assert cluster.sent("DELETE") == ["DELETE web"] * 2


async def test_odd_objects_stop_nothing(cluster: Cluster) -> None:
    uid = await running_pod(cluster)
    odd: list[Object] = [{}, {"metadata": None}, {"metadata": {"name": 1}, "status": []}, {"metadata": {"uid": "x"}}]
    shown = cluster.desired.get(uid)
    assert shown is not None
    cluster.watching = False
    for number, thing in enumerate(odd):
        key = f"odd{number}"
        cluster.desired.put(key, type(shown)(uid=key, source="api", pod=thing))
        cluster.admit(key, PodState.FINISHED)
        cluster.publish_status(key, name="odd")
    await cluster.live(3)
    cluster.publish_status(uid, ready=False)
    await cluster.live(3)
    assert ready(cluster.shown()) == "False" and cluster.status is not None and not cluster.status.done()
