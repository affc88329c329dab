"""A start without API server: pods run from the encrypted record, and then the API server's list counts."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.sources.controllers import cluster_pods, offline_pods
from services.sources.controllers.offline_pods import MIN_SAVE_SECONDS, READ_TIMEOUT_SECONDS
from shared.config.effective import OfflinePods
from shared.files.atomic import write_atomically
from shared.kube import paths
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.kube.interface import ApiStatusError
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.offline.answers import WITHOUT_ANSWER_SECONDS
from tests.fakes.api_server import Received
from tests.fakes.virtual_time import on_virtual_time
from tests.service.sources.cluster import NODE, ClusterNode, cluster_node, pod

SECRETS = {f"secret-{number}": f"hunter2-{number}-correct-horse" for number in range(3)}
SAVED_WITHIN = 11.0  # the record follows within five seconds; and a change in between within five more
NOTICED_WITHIN = 5.0  # seconds after the return of the API server, while pods run from the record
USED_WITHIN = WITHOUT_ANSWER_SECONDS + 1.0


def write_credentials(run_dir: str, server: str = "https://10.0.0.1:6443") -> None:
    """As bootstrap does."""
    path = credentials_path(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode_credentials(Credentials(version=1, server=server)))


@contextlib.asynccontextmanager
async def offline_node(tmp_path: Path, **settings: Any) -> AsyncIterator[ClusterNode]:
    """A node whose records are enabled."""
    async with cluster_node(tmp_path, offline_pods=OfflinePods(**settings)) as node:
        write_credentials(node.config.run_dir)
        yield node


def put_objects(node: ClusterNode) -> None:
    """Secrets, a ConfigMap and a bound claim."""
    for name, value in SECRETS.items():
        data = {"data": {"password": base64.b64encode(value.encode()).decode()}}
        node.api.put(f"{paths.referenced('Secret', 'default')}/{name}", {"metadata": {"name": name}, **data})
    node.api.put(
        f"{paths.referenced('ConfigMap', 'default')}/settings", {"metadata": {"name": "settings"}, "data": {"a": "1"}}
    )
    node.api.put(
        paths.persistent_volume_claim("default", "data"),
        {"metadata": {"name": "data", "uid": "c1"}, "spec": {"volumeName": "pv1"}, "status": {"phase": "Bound"}},
    )
    node.api.put(paths.persistent_volume("pv1"), {"metadata": {"name": "pv1"}, "spec": {"claimRef": {"uid": "c1"}}})


def pod_with(name: str, secret: str, *, claim: bool = False, **spec: Any) -> Object:
    """A pod with a Secret in a volume, another in a variable, a ConfigMap, and perhaps a claim."""
    volumes: list[Object] = [{"name": "s", "secret": {"secretName": secret}}]
    volumes += [{"name": "c", "persistentVolumeClaim": {"claimName": "data"}}] if claim else []
    made = pod(name, volumes=volumes, **spec)
    made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    return made


async def record_everything(node: ClusterNode, names: tuple[str, ...] = ("web", "db", "job")) -> dict[str, str]:
    """Run these pods, request what they need as the other services do, and let the record follow. Return their UIDs."""
    put_objects(node)
    uids = {}
    for name, secret in zip(names, SECRETS, strict=False):
        uids[name] = objects.uid(node.api.bind(pod_with(name, secret, claim=name == "db"), NODE))
    await node.start()
    for kind, name in (*(("Secret", name) for name in SECRETS), ("ConfigMap", "settings")):
        await node.ask(kind, name)
    await node.ask("PersistentVolumeClaim", "data")
    await node.ask("PersistentVolume", "pv1", namespace="")
    await node.pass_time(SAVED_WITHIN)
    return uids


async def boot_without_api_server(node: ClusterNode) -> None:
    """Sources ends, the API server is gone, and sources starts."""
    await node.kill()
    node.api.down()
    await node.start()
    await node.pass_time(USED_WITHIN)


def record_files(node: ClusterNode) -> list[Path]:
    """All files of the feature, below both directories."""
    places = (Path(place) / "bulkhead" / "offline" for place in (node.config.root_dir, node.config.run_dir))
    return [path for place in places for path in place.rglob("*") if path.is_file()]


def recorded(node: ClusterNode) -> list[str]:
    """Names of the pods that are marked as from the record."""
    return sorted(objects.name(one.pod) for one in node.desired.state.values() if one.recorded)


@on_virtual_time
async def test_the_last_pods_are_wanted_and_marked_and_the_set_is_not_complete(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        before = {uid: one.pod for uid, one in node.desired.state.items()}
        await boot_without_api_server(node)
        assert node.wanted() == recorded(node) == ["db", "job", "web"] and not node.desired.complete
        for uid, pod_before in before.items():  # with the annotation of when it was first seen, and the same spec
            after = node.desired.state[uid].pod
            assert after["spec"] == pod_before["spec"] and after["metadata"] == pod_before["metadata"]
        assert objects.name(node.nodes.state["node"].node) == NODE and not node.nodes.complete
        assert any("3 pods are known from the record of 2023-11-14T" in line for line in node.troubles())


@on_virtual_time
async def test_what_pods_need_comes_from_the_record(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_an_attachment_is_never_answered_from_the_record(tmp_path: Path) -> None:
    """The volume may be attached to another node by now."""
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        node.api.put("/apis/storage.k8s.io/v1/volumeattachments/csi-1", {"metadata": {"name": "csi-1"}})
        assert (await node.ask("VolumeAttachment", "csi-1", namespace="")).object is not None
        await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        assert (await node.ask("VolumeAttachment", "csi-1", namespace="")).object is None


@on_virtual_time
async def test_after_the_return_the_api_servers_list_counts(tmp_path: Path) -> None:
    """One pod stays, one was deleted, one edited, one moved: its successor has another UID on another node."""
    async with offline_node(tmp_path) as node:
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


@pytest.mark.parametrize("fault", ["down", "not ready"])
@on_virtual_time
async def test_the_return_is_noticed_within_seconds_also_after_a_long_outage(tmp_path: Path, fault: str) -> None:
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_requests_right_after_the_start_wait_for_the_record_and_are_not_refused(tmp_path: Path) -> None:
    """The services that send them would repeat them only after a back-off."""
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        node.api.down()
        await node.start()
        asking = [asyncio.create_task(node.get_object("Secret", name)) for name in (*SECRETS, "other")]
        await node.pass_time(1.0)
        assert [task.done() for task in asking] == [False] * len(SECRETS) + [True], "nothing is known of the last one"
        await node.pass_time(USED_WITHIN - 1.0)
        assert all(task.done() and task.result().object is not None for task in asking[:-1])


@on_virtual_time
async def test_requests_right_after_the_start_are_answered_when_the_api_server_lists_the_pods(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_services_come_from_the_record_until_they_are_listed(tmp_path: Path) -> None:
    """Containers that start right after the return need their variables."""
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await boot_without_api_server(node)
        node.api.up()
        node.api.slow(lambda received: 20.0 if received.path == paths.SERVICES else 0.0)
        await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
        assert (await node.services_for("default")).synced


@on_virtual_time
async def test_a_pod_that_has_ended_is_not_brought_back_by_an_older_record(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        node.api.delete(paths.pod("default", "job"), grace=0)
        await node.until(lambda: node.wanted() == ["db", "web"], within=2.0)
        await boot_without_api_server(node)
        assert node.wanted() == ["db", "web"]


@pytest.mark.parametrize("missing", ["file", "directory"])
@on_virtual_time
async def test_credentials_that_come_late_are_waited_for(tmp_path: Path, missing: str) -> None:
    """An exec plugin may provide them some time after the boot."""
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_an_edit_is_recorded_at_once_so_that_a_power_cut_brings_back_no_older_spec(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        web = node.api.get(paths.pod("default", "web"))
        assert web is not None
        image = [{**web["spec"]["containers"][0], "image": "busybox:2"}]
        node.api.put(paths.pod("default", "web"), {**web, "spec": {**web["spec"], "containers": image}})
        await node.settle()
        await boot_without_api_server(node)
        [again] = [one.pod for one in node.desired.state.values() if objects.name(one.pod) == "web"]
        assert again["spec"]["containers"][0]["image"] == "busybox:2"


@on_virtual_time
async def test_objects_of_the_record_are_not_given_once_it_is_older_than_max_age(tmp_path: Path) -> None:
    async with offline_node(tmp_path, max_age=400.0) as node:
        await record_everything(node)
        await boot_without_api_server(node)
        assert (await node.ask("Secret", "secret-0")).object is not None
        await node.pass_time(400.0)
        assert (await node.ask("Secret", "secret-0", within=60.0)).object is None
        assert recorded(node) == ["db", "job", "web"], "what runs goes on"


@pytest.mark.parametrize("fault", ["hangs", "not ready"])
@on_virtual_time
async def test_an_api_server_that_answers_for_the_node_and_not_for_its_pods_has_not_answered(
    tmp_path: Path, fault: str
) -> None:
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_a_slow_api_server_has_answered_while_each_answer_comes_in_time(tmp_path: Path) -> None:
    """4 s for the Node, and 4 s more for its pods."""
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        node.api.slow(4.0)
        history = len(node.desired.history)
        await node.start()
        await node.until(lambda: node.desired.complete, within=30.0)
        assert recorded(node) == [] and len(node.desired.history) >= history and node.events.state == {}


@on_virtual_time
async def test_objects_that_cannot_be_read_delay_the_record_by_one_wait_together(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        for number in range(15):
            node.api.bind(pod_with(f"web-{number}", f"unreadable-{number}"), NODE)
        node.api.slow(lambda received: 3600.0 if "/secrets" in received.path else 0.0)
        await node.start()
        await node.pass_time(MIN_SAVE_SECONDS + READ_TIMEOUT_SECONDS + 1.0)
        await boot_without_api_server(node)
        assert len(recorded(node)) == 15


@pytest.mark.share(3)
@pytest.mark.parametrize("code", [401, 403, 503])
@on_virtual_time
async def test_a_record_becomes_older_while_the_api_server_answers_with_errors(tmp_path: Path, code: int) -> None:
    async with offline_node(tmp_path, max_age=400.0) as node:
        await record_everything(node)
        node.api.refuse(10_000_000, code)
        await node.pass_time(2000.0)
        await boot_without_api_server(node)
        assert recorded(node) == []
        assert any("more than offlinePods.maxAge" in line for line in node.troubles())


@on_virtual_time
async def test_objects_of_the_record_are_not_given_once_the_api_server_refuses_the_node(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await boot_without_api_server(node)
        node.api.up()
        node.api.refuse(10_000_000, 401)
        await node.pass_time(NOTICED_WITHIN + 1.0)
        assert (await node.ask("Secret", "secret-0")).object is None


@pytest.mark.parametrize("strategy", ["Get", "Cache", "Watch"])
@on_virtual_time
async def test_a_secret_that_was_rotated_while_the_agent_was_away_is_recorded_anew(
    tmp_path: Path, strategy: str
) -> None:
    async with offline_node(tmp_path) as node:
        node.config = replace(node.config, change_detection_strategy=strategy)
        await record_everything(node)
        await node.kill()
        path = f"{paths.referenced('Secret', 'default')}/secret-0"
        node.api.put(path, {"metadata": {"name": "secret-0"}, "data": {"password": "bmV3"}})
        await node.start()
        await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        found = (await node.ask("Secret", "secret-0")).object
        assert found is not None and found["data"]["password"] == "bmV3"


@pytest.mark.parametrize("when", ["while the agent was away", "while it ran"])
@on_virtual_time
async def test_a_rotated_secret_of_a_volumes_driver_is_recorded_anew(tmp_path: Path, when: str) -> None:
    """No watch shows its change: it is read again at a start, and whenever the record is renewed."""
    volume = {
        "metadata": {"name": "pv1"},
        "spec": {
            "claimRef": {"uid": "c1"},
            "csi": {"driver": "d", "nodePublishSecretRef": {"namespace": "default", "name": "of-driver"}},
        },
    }
    path = f"{paths.referenced('Secret', 'default')}/of-driver"
    async with offline_node(tmp_path, max_age=2000.0) as node:
        put_objects(node)
        node.api.put(paths.persistent_volume("pv1"), volume)
        node.api.put(path, {"metadata": {"name": "of-driver"}, "data": {"password": "b2xk"}})
        node.api.bind(pod_with("db", "secret-0", claim=True), NODE)
        reader = node.api.client()  # the rules of nodes of this double have no Secrets of PersistentVolumes
        await node.start(reader)
        await node.pass_time(2 * SAVED_WITHIN)
        if when == "while it ran":
            node.api.put(path, {"metadata": {"name": "of-driver"}, "data": {"password": "bmV3"}})
            await node.pass_time(2 * 2000.0 / 4 + SAVED_WITHIN)
        else:
            await node.kill()
            node.api.put(path, {"metadata": {"name": "of-driver"}, "data": {"password": "bmV3"}})
            await node.start(reader)
            await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        found = (await node.ask("VolumeSecret", "of-driver")).object
        assert found is not None and found["data"]["password"] == "bmV3"


@pytest.mark.share(3)
@pytest.mark.parametrize("strategy", ["Get", "Cache", "Watch"])
@on_virtual_time
async def test_without_changes_the_record_is_not_saved_again(tmp_path: Path, strategy: str) -> None:
    async with offline_node(tmp_path) as node:
        node.config = replace(node.config, change_detection_strategy=strategy)
        await record_everything(node)
        await node.pass_time(60.0)
        path = next(path for path in record_files(node) if path.name == "pods.json")
        before = path.stat().st_mtime_ns
        await node.pass_time(600.0)
        assert path.stat().st_mtime_ns == before


@on_virtual_time
async def test_a_rotated_secret_is_read_anew_after_the_return(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
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


@on_virtual_time
async def test_a_secret_that_only_a_variable_shows_is_recorded_as_it_is_now(tmp_path: Path) -> None:
    """No service requests it again after its container has started."""
    async with offline_node(tmp_path) as node:
        put_objects(node)
        web = pod("web")
        web["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "secret-0"}}]
        node.api.bind(web, NODE)
        await node.start()
        await node.ask("Secret", "secret-0")
        await node.pass_time(SAVED_WITHIN)
        path = f"{paths.referenced('Secret', 'default')}/secret-0"
        node.api.put(path, {"metadata": {"name": "secret-0"}, "data": {"password": "bmV3"}})
        await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        found = (await node.ask("Secret", "secret-0")).object
        assert found is not None and found["data"]["password"] == "bmV3"


@on_virtual_time
async def test_no_secret_is_on_disk_in_clear_and_none_stays_that_no_pod_names(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        files = record_files(node)
        assert {path.name for path in files} == {"key", "pods.json"}
        for path in Path(tmp_path).rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            for value in SECRETS.values():
                assert value.encode() not in content and base64.b64encode(value.encode()) not in content, path
        node.api.delete(paths.pod("default", "web"), grace=0)
        await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        assert node.wanted() == ["db", "job"]
        assert (await node.ask("Secret", "secret-0")).object is None
        assert (await node.ask("Secret", "secret-1")).object is not None


@on_virtual_time
async def test_without_the_setting_there_is_no_file_and_an_earlier_record_is_removed(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        assert record_files(node)
        await node.kill()
        node.config = replace_config(node, None)
        await node.start()
        await node.pass_time(SAVED_WITHIN)
        assert record_files(node) == [] and not (Path(node.config.root_dir) / "bulkhead" / "offline").exists()
        await boot_without_api_server(node)
        assert recorded(node) == [] and not node.desired.complete


@on_virtual_time
async def test_an_api_server_that_answers_is_not_overtaken_by_the_record(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        node.api.delete(paths.pod("default", "job"), grace=0)
        history = len(node.desired.history)
        await node.start()
        await node.pass_time(USED_WITHIN)
        assert node.wanted() == ["db", "web"] and node.desired.complete
        assert len(node.desired.history) >= history and recorded(node) == [] and node.events.state == {}


@on_virtual_time
async def test_an_api_server_that_refuses_the_node_has_answered(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        node.api.refuse(10_000, 401)
        await node.start()
        await node.pass_time(20.0)
        assert recorded(node) == []


@pytest.mark.parametrize("fault", ["pause", "not ready"])
@on_virtual_time
async def test_an_api_server_that_hangs_or_is_not_ready_has_not_answered(tmp_path: Path, fault: str) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        if fault == "pause":
            node.api.pause()
        else:
            node.api.refuse(10_000, 503)
        await node.start()
        await node.pass_time(USED_WITHIN)
        assert recorded(node) == ["db", "job", "web"]


def replace_config(node: ClusterNode, settings: OfflinePods | None, **fields: Any) -> Any:
    """The configuration of the next start."""
    return replace(node.config, offline_pods=settings, **fields)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("node", "it is of cluster https://10.0.0.1:6443 (CA "),
        ("server", "and not of this node in this cluster"),
        ("key", "damaged, or was sealed with another key"),
        ("age", "h ago, more than offlinePods.maxAge"),
        ("mode", "others than root may read the key"),
    ],
)
@on_virtual_time
async def test_a_record_that_cannot_count_is_refused_in_one_line(tmp_path: Path, change: str, line: str) -> None:
    async with offline_node(tmp_path, max_age=200.0) as node:
        await record_everything(node)
        await node.kill()
        node.api.down()
        key = Path(node.config.root_dir) / "bulkhead" / "offline" / "key"
        match change:
            case "node":
                node.config = replace_config(node, node.config.offline_pods, node_name="node2")
            case "server":
                write_credentials(node.config.run_dir, "https://10.0.0.2:6443")
            case "key":
                key.write_bytes(bytes(32))
            case "age":
                node.clock.advance(300.0)
            case "mode":
                key.chmod(0o644)
        await node.start()
        await node.pass_time(USED_WITHIN)
        assert recorded(node) == [] and not node.desired.complete
        lines = [one for one in node.troubles() if "record of pods is not used" in one]
        assert len(lines) == 1 and line in lines[0] and "\n" not in lines[0], node.troubles()


@on_virtual_time
async def test_a_truncated_record_starts_nothing_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        path = next(path for path in record_files(node) if path.name == "pods.json")
        path.write_bytes(path.read_bytes()[:500])
        await boot_without_api_server(node)
        assert recorded(node) == []
        node.api.up()
        await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
        await node.pass_time(SAVED_WITHIN)
        await boot_without_api_server(node)
        assert recorded(node) == ["db", "job", "web"]


@on_virtual_time
async def test_a_record_that_the_api_server_confirms_does_not_age(tmp_path: Path) -> None:
    async with offline_node(tmp_path, max_age=200.0) as node:
        await record_everything(node)
        await node.pass_time(500.0)
        await boot_without_api_server(node)
        assert recorded(node) == ["db", "job", "web"]


@on_virtual_time
async def test_a_full_record_leaves_out_pods_of_low_priority_and_names_them(tmp_path: Path) -> None:
    async with offline_node(tmp_path, max_bytes=64 << 10) as node:
        for name, priority in (("low", 1), ("high", 1000), ("middle", 100)):
            space = f"{paths.referenced('ConfigMap', 'default')}/{name}"
            node.api.put(space, {"metadata": {"name": name}, "data": {"a": "x" * (28 << 10)}})
            made = pod(name, priority=priority)
            made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": name}}]
            node.api.bind(made, NODE)
        await node.start()
        await node.pass_time(SAVED_WITHIN)
        assert any(
            "1 pods are not in the record of pods, which is full: low_default(" in one for one in node.troubles()
        )
        await boot_without_api_server(node)
        assert recorded(node) == ["high", "middle"]


@pytest.mark.parametrize(
    ("point", "module"), [("sources.offline.saved", offline_pods), ("sources.offline.published", cluster_pods)]
)
@on_virtual_time
async def test_a_kill_at_each_point_leaves_a_record_to_start_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, module: Any
) -> None:
    async with offline_node(tmp_path) as node:
        await record_everything(node)
        await node.kill()
        reached: list[str] = []

        def end_there(name: str) -> None:
            if name == point:
                reached.append(name)
                raise RuntimeError("killed")

        with monkeypatch.context() as killed:
            killed.setattr(module, "crash_point", end_there)
            if point.endswith("published"):
                node.api.down()
            with contextlib.suppress(AssertionError):  # sources has ended
                await node.start()
                await node.pass_time(SAVED_WITHIN)
            assert reached == [point]
        await boot_without_api_server(node)
        assert node.wanted() == recorded(node) == ["db", "job", "web"]
        node.api.up()
        await node.until(lambda: node.desired.complete, within=NOTICED_WITHIN + 2.0)
        assert node.wanted() == ["db", "job", "web"] and recorded(node) == []
