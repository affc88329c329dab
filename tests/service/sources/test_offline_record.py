"""The encrypted record of pods: what is in it, when it is saved, and which one counts."""

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.sources.controllers import cluster_pods, offline_pods
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.offline_pods import MIN_SAVE_SECONDS, READ_TIMEOUT_SECONDS
from shared.kube import paths
from shared.model import objects
from shared.model.frozen_copy import replace
from tests.service.sources.cluster import NODE, ClusterNode, pod
from tests.service.sources.offline_node import (
    NOTICED_WITHIN,
    SAVED_WITHIN,
    SECRETS,
    USED_WITHIN,
    boot_without_api_server,
    offline_node,
    pod_with,
    put_objects,
    record_everything,
    record_files,
    recorded,
    replace_config,
    write_credentials,
)

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ClusterNode]:
    async with offline_node(tmp_path) as node:
        yield node


async def test_an_edit_is_recorded_at_once_so_that_a_power_cut_brings_back_no_older_spec(node: ClusterNode) -> None:
    await record_everything(node)
    web = node.api.get(paths.pod("default", "web"))
    assert web is not None
    image = [{**web["spec"]["containers"][0], "image": "busybox:2"}]
    node.api.put(paths.pod("default", "web"), {**web, "spec": {**web["spec"], "containers": image}})
    await node.settle()
    await boot_without_api_server(node)
    [again] = [one.pod for one in node.desired.state.values() if objects.name(one.pod) == "web"]
    assert again["spec"]["containers"][0]["image"] == "busybox:2"


async def test_objects_that_cannot_be_read_delay_the_record_by_one_wait_together(node: ClusterNode) -> None:
    for number in range(15):
        node.api.bind(pod_with(f"web-{number}", f"unreadable-{number}"), NODE)
    node.api.slow(lambda received: 3600.0 if "/secrets" in received.path else 0.0)
    await node.start()
    await node.pass_time(MIN_SAVE_SECONDS + READ_TIMEOUT_SECONDS + 1.0)
    await boot_without_api_server(node)
    assert len(recorded(node)) == 15


@pytest.mark.long
async def test_a_change_in_an_outage_waits_for_its_end_without_taking_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    is_answered_with_error = ApiServer.is_answered_with_error

    def noted(api: ApiServer, what: str) -> bool:
        looks.append(what)
        return is_answered_with_error(api, what)

    async with offline_node(tmp_path) as node:
        await record_everything(node)
        node.api.bind(pod_with("late", "secret-0"), NODE)
        await node.pass_time(1.0)
        node.api.bind(pod_with("later", "secret-1"), NODE)  # it is recorded five seconds after the other
        await node.settle()
        node.api.drop_watches()
        node.api.refuse(0, 503)
        await node.pass_time(3.0)
        monkeypatch.setattr(ApiServer, "is_answered_with_error", noted)
        await node.pass_time(60.0)
        assert 0 < len(looks) <= 2 * (60.0 / MIN_SAVE_SECONDS + 1)
        node.api.up()
        await node.pass_time(60.0)
        await boot_without_api_server(node)
        assert "later" in recorded(node)


@pytest.mark.long
@pytest.mark.share(3)
@pytest.mark.parametrize("code", [401, 403, 503])
async def test_a_record_becomes_older_while_the_api_server_answers_with_errors(tmp_path: Path, code: int) -> None:
    async with offline_node(tmp_path, max_age=400.0) as node:
        await record_everything(node)
        node.api.refuse(10_000_000, code)
        await node.pass_time(2000.0)
        await boot_without_api_server(node)
        assert recorded(node) == []
        assert any("more than offlinePods.maxAge" in line for line in node.troubles())


@pytest.mark.parametrize("strategy", ["Get", "Cache", "Watch"])
async def test_a_secret_that_was_rotated_while_the_agent_was_away_is_recorded_anew(
    node: ClusterNode, strategy: str
) -> None:
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


@pytest.mark.long
@pytest.mark.parametrize("when", ["while the agent was away", "while it ran"])
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


@pytest.mark.long
@pytest.mark.share(3)
@pytest.mark.parametrize("strategy", ["Get", "Cache", "Watch"])
async def test_without_changes_the_record_is_not_saved_again(node: ClusterNode, strategy: str) -> None:
    node.config = replace(node.config, change_detection_strategy=strategy)
    await record_everything(node)
    await node.pass_time(60.0)
    path = next(path for path in record_files(node) if path.name == "pods.json")
    before = path.stat().st_mtime_ns
    await node.pass_time(600.0)
    assert path.stat().st_mtime_ns == before


async def test_a_secret_that_only_a_variable_shows_is_recorded_as_it_is_now(node: ClusterNode) -> None:
    """No service requests it again after its container has started."""
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


async def test_no_secret_is_on_disk_in_clear_and_none_stays_that_no_pod_names(
    node: ClusterNode, tmp_path: Path
) -> None:
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


async def test_without_the_setting_there_is_no_file_and_an_earlier_record_is_removed(node: ClusterNode) -> None:
    await record_everything(node)
    assert record_files(node)
    await node.kill()
    node.config = replace_config(node, None)
    await node.start()
    await node.pass_time(SAVED_WITHIN)
    assert record_files(node) == [] and not (Path(node.config.root_dir) / "bulkhead" / "offline").exists()
    await boot_without_api_server(node)
    assert recorded(node) == [] and not node.desired.complete


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


async def test_a_truncated_record_starts_nothing_and_the_next_one_replaces_it(node: ClusterNode) -> None:
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


async def test_a_record_that_the_api_server_confirms_does_not_age(tmp_path: Path) -> None:
    async with offline_node(tmp_path, max_age=200.0) as node:
        await record_everything(node)
        await node.pass_time(500.0)
        await boot_without_api_server(node)
        assert recorded(node) == ["db", "job", "web"]


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
async def test_a_kill_at_each_point_leaves_a_record_to_start_from(
    node: ClusterNode, monkeypatch: pytest.MonkeyPatch, point: str, module: Any
) -> None:
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
