"""The local API for manifests, over its real socket: what is taken, what is refused, what other processes receive."""

import asyncio
import base64
import contextlib
import io
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from yarl import URL

from bus.messages.sources import DesiredPod, FoundObject, GetObject
from bus.messages.streams import OBJECTS_CHANGED, PODS_DESIRED
from services.cli.pods.applied import apply_files, delete_applied, list_applied
from services.frame.launch import Context
from services.sources.adapters import apply_socket
from services.sources.controllers import apply_endpoint
from services.sources.core.applied_object import MAX_FILES
from services.sources.service import build
from shared.agent.apply_api import DIRECTORY, MAX_APPLIED_BYTES, PATH, SOCKET
from shared.config.effective import EffectiveConfig
from shared.model import objects
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

JSON = dict[str, Any]
HOST_NETWORK = b"spec:\n  hostNetwork: true\n  containers: [{name: main, image: busybox}]\n"


def pod(name: str, **spec: Any) -> JSON:
    containers = [{"name": "main", "image": "busybox"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def config_map(name: str, data: JSON, **fields: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data, **fields}


def secret(name: str, data: JSON) -> JSON:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def names(state: dict[str, DesiredPod]) -> list[str]:
    return sorted(objects.name(desired.pod) for desired in state.values())


class Node:
    """sources of a node without a cluster, and a client of its socket."""

    def __init__(self, tmp_path: Path) -> None:
        self.network = MemoryNetwork()
        self.root_dir, self.run_dir = tmp_path / "root", tmp_path / "run"
        self.run_dir.mkdir()
        self.directory = self.root_dir / DIRECTORY
        self.bus = self.network.bus("podsync")
        self.desired = FollowedStream(self.bus, PODS_DESIRED)
        self.changed = FollowedStream(self.bus, OBJECTS_CHANGED)

    @contextlib.asynccontextmanager
    async def sources(self, static_pod_path: str = "") -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="n1",
            root_dir=str(self.root_dir),
            run_dir=str(self.run_dir),
            log_dir="",
            cert_dir="",
            static_pod_path=static_pod_path,
        )
        bus = self.network.bus("sources")
        service = build(Context("sources", config, bus, self.network.clock, asyncio.Event()))
        async with running_service(self.network, bus, service):
            await self.desired.until_complete()
            yield

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, JSON]:
        """Answer of the API; `path` is below that of manifests and is sent as it is."""
        directory = os.open(self.run_dir, os.O_PATH)
        target = URL(f"http://bulkhead{PATH}{path}", encoded=True)
        connector = aiohttp.UnixConnector(f"/proc/self/fd/{directory}/{SOCKET}")
        try:
            async with asyncio.timeout(WAIT_SECONDS), aiohttp.ClientSession(connector=connector) as session:
                while True:
                    try:
                        async with session.request(method, target, data=io.BytesIO(body)) as response:
                            return response.status, await response.json()
                    except aiohttp.ClientConnectorError:  # a sources that has just started does not listen yet
                        await asyncio.sleep(0.01)
        finally:
            os.close(directory)

    async def apply(self, document: Any) -> tuple[int, JSON]:
        return await self.send("POST", "", document if isinstance(document, bytes) else orjson.dumps(document))

    async def get(self, kind: str, name: str) -> FoundObject:
        request = GetObject(kind=kind, namespace="default", name=name)
        async with asyncio.timeout(WAIT_SECONDS):
            while "not registered" in (found := await self.bus.ask("sources", request, FoundObject)).error:
                await asyncio.sleep(0.01)  # a sources that has just started has not looked yet
            return found


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.bus.start()
    return node


async def test_pods_are_applied_changed_listed_and_deleted(node: Node) -> None:
    async with node.sources():
        code, answer = await node.apply(pod("web"))
        assert (code, answer["result"], answer["metadata"]) == (201, "created", {"namespace": "default", "name": "web"})
        first = await node.desired.until(bool)
        assert names(first) == ["web-n1"]
        assert (await node.apply(pod("web")))[1]["result"] == "unchanged"
        code, answer = await node.apply(b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" + HOST_NETWORK)
        assert (code, answer["result"]) == (200, "configured")
        await node.desired.until(lambda state: bool(state) and not state.keys() & first.keys())
        listed = (await node.send("GET", ""))[1]["items"]
        assert [(item["kind"], item["metadata"]["name"]) for item in listed] == [("Pod", "web")]
        assert (await node.send("DELETE", "/pod/default/web"))[1]["result"] == "deleted"
        await node.desired.until(lambda state: not state)
        code, answer = await node.send("DELETE", "/pod/default/web")
        assert (code, answer["reason"], answer["message"]) == (404, "NotFound", "Pod default/web not found")


async def test_what_was_submitted_is_there_after_a_restart(node: Node) -> None:
    async with node.sources():
        await node.apply(config_map("c", {"a": "1"}))
        await node.apply(pod("web"))
        before = await node.desired.until(bool)
    async with node.sources():
        assert await node.desired.until(bool) == before
        found = await node.get("ConfigMap", "c")
        assert found.object is not None and found.object["data"] == {"a": "1"}


async def test_a_kill_before_the_answer_leaves_the_file_and_a_repeated_request_changes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_there(name: str) -> None:
        assert name == "sources.applied"
        raise RuntimeError("killed")

    async with node.sources():
        with monkeypatch.context() as patched:
            patched.setattr(apply_endpoint, "crash_point", end_there)
            assert (await node.apply(pod("web")))[0] == 500
    async with node.sources():
        assert (await node.apply(pod("web")))[1]["result"] == "unchanged"
        assert names(await node.desired.until(bool)) == ["web-n1"]


async def test_objects_are_read_and_a_change_is_published_with_a_new_version(node: Node) -> None:
    async with node.sources():
        assert (await node.get("Secret", "s")).error == 'secret "s" not found'
        await node.apply(secret("s", {"password": "one"}))
        first = (await node.changed.until(lambda state: "Secret/default/s" in state))["Secret/default/s"]
        found = await node.get("Secret", "s")
        assert found.object is not None
        assert found.object["data"] == {"password": base64.b64encode(b"one").decode()}
        assert found.object["metadata"]["resourceVersion"] == first.resource_version
        await node.apply(secret("s", {"password": "two"}))
        await node.changed.until(lambda state: state["Secret/default/s"] != first)
        await node.send("DELETE", "/secret/default/s")
        await node.changed.until(lambda state: "Secret/default/s" not in state)
        assert (await node.get("Secret", "s")).not_found


async def test_a_file_placed_by_hand_counts_and_a_broken_one_leaves_what_was_read(node: Node) -> None:
    node.directory.mkdir(parents=True)
    file = node.directory / "configmap.mine.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: one}\n")
    async with node.sources():
        await node.changed.until(bool)
        file.write_text("{")
        (node.directory / "pod.default.web").write_bytes(orjson.dumps(pod("web")))
        await node.desired.until(bool)
        found = await node.get("ConfigMap", "c")
        assert found.object is not None and found.object["data"] == {"a": "one"}


async def test_a_pod_may_name_configmaps_and_secrets_only_when_it_was_submitted(node: Node) -> None:
    named = pod(
        "web", volumes=[{"name": "v", "configMap": {"name": "c"}}, {"name": "s", "secret": {"secretName": "s"}}]
    )
    claim = pod("db", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    async with node.sources():
        assert (await node.apply(named))[0] == 201
        assert names(await node.desired.until(bool)) == ["web-n1"]
        code, answer = await node.apply(claim)
        assert (code, answer["message"]) == (422, "static pods may not reference persistentvolumeclaims")


async def test_an_applied_pod_replaces_a_static_pod_of_its_name(node: Node, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "web.json").write_bytes(orjson.dumps(pod("web")))
    for restarted in (False, True):  # the record of the static pod's name is there, too
        async with node.sources(str(manifests)):
            await node.desired.until(bool)
            volumes = [{"name": "v", "configMap": {"name": "c"}}]
            assert (await node.apply(pod("web", volumes=volumes)))[0] == (200 if restarted else 201)
            await node.desired.until(
                lambda state: [desired.pod["spec"].get("volumes") is not None for desired in state.values()] == [True]
            )


BAD = {
    "path in a name": (config_map("../../etc/passwd", {}), 422, "metadata.name: a lowercase RFC 1123 subdomain"),
    "dots as a name": (config_map("..", {}), 422, "metadata.name: a lowercase"),
    "NUL in a name": (config_map("a\x00b", {}), 422, "metadata.name: a lowercase"),
    "path in a namespace": (
        {**pod("web"), "metadata": {"name": "web", "namespace": "../x"}}, 422, "metadata.namespace: a lowercase",
    ),
    "long name": (config_map("a" * 253, {}), 422, "metadata.name: kind, namespace and name have more than"),
    "no name": ({"apiVersion": "v1", "kind": "Secret", "metadata": {}}, 422, "metadata.name: Required value"),
    "other kind": ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}, 400, "kind one of Pod, ConfigMap"),
    "a list": ([], 400, "kind one of Pod"),
    "no document": (b"", 400, "the file is empty"),
    "no YAML": (b"{[", 400, "not YAML"),
    "two documents": (b"a: 1\n---\nb: 2\n", 400, "2 YAML documents"),
    "invalid pod": (pod("web", containers=[]), 422, "invalid pod: "),
    "a number as data": (config_map("c", {"a": 1}), 422, "data: must be a map of strings"),
    "path in a key": (config_map("c", {"../a": "1"}), 422, "a key has alphanumeric characters"),
    "a key twice": (config_map("c", {"a": "1"}, binaryData={"a": ""}), 422, "duplicate of key present in data"),
    "no base64": ({**secret("s", {}), "data": {"a": "hunter2!"}}, 422, "data['a']: is not base64"),
    "too much data": (config_map("c", {"a": "x" * (1 << 20), "b": "x"}), 422, "may not be more than 1048576 bytes"),
    "too large": (b" " * (MAX_APPLIED_BYTES + 1), 413, "larger than the"),
    "10 MiB": (b"#" * (10 << 20), 413, "larger than the"),
}  # fmt: skip


@pytest.mark.parametrize("bad", sorted(BAD))
async def test_a_bad_object_is_one_line_and_leaves_no_file(node: Node, bad: str) -> None:
    document, code, text = BAD[bad]
    async with node.sources():
        try:
            found, answer = await node.apply(document)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            assert bad == "10 MiB"  # the answer came, and the connection ended, before all was sent
        else:
            assert (found, answer["kind"]) == (code, "Status")
            assert text in answer["message"] and "\n" not in answer["message"] and "hunter2" not in answer["message"]
        assert (await node.send("GET", ""))[1]["items"] == []
    assert not node.directory.exists() or not list(node.directory.iterdir())


@pytest.mark.parametrize(
    "path", ["/pod/default/..%2f..%2fx", "/pod/../x", "/secret/default/a%00b", "/../../x", "/pod/default", "/nodes/a/b"]
)
async def test_a_path_trick_deletes_nothing(node: Node, path: str) -> None:
    node.directory.mkdir(parents=True)
    outside = node.directory.parent / "x"
    async with node.sources():
        outside.write_text("stays")
        assert (await node.send("DELETE", path))[0] in (400, 404, 422)
        assert outside.read_text() == "stays"


@pytest.mark.long
async def test_a_thousand_objects_are_taken_up_to_the_limit(node: Node) -> None:
    async with node.sources():
        codes = []
        for number in range(0, 1000, 50):
            answers = await asyncio.gather(*(node.apply(config_map(f"c{number + n}", {})) for n in range(50)))
            codes += [code for code, _ in answers]
        assert (codes.count(201), codes.count(403)) == (MAX_FILES, 1000 - MAX_FILES)
        await node.changed.until(lambda state: len(state) == MAX_FILES)
        assert (await node.apply(config_map("c0", {"a": "1"})))[0] == 200, "a change of what is there is taken"


async def test_an_immutable_object_is_not_changed(node: Node) -> None:
    async with node.sources():
        await node.apply(config_map("c", {"a": "1"}, immutable=True))
        code, answer = await node.apply(config_map("c", {"a": "2"}, immutable=True))
        assert (code, "field is immutable" in answer["message"]) == (422, True)
        await node.send("DELETE", "/configmap/default/c")
        assert (await node.apply(config_map("c", {"a": "2"})))[0] == 201


async def test_a_full_disk_is_one_line_and_nothing_is_half_there(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_path: Path, _content: bytes, _mode: int = 0) -> None:
        raise OSError(28, "No space left on device")

    async with node.sources():
        monkeypatch.setattr("services.sources.adapters.applied_files.write_atomically", no_space)
        code, answer = await node.apply(pod("web"))
        assert (code, "No space left on device (free some space" in answer["message"]) == (507, True)
        assert (await node.send("GET", ""))[1]["items"] == []


async def test_a_client_of_another_user_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node.sources():
        await node.send("GET", "")
        assert stat.S_IMODE((node.run_dir / SOCKET).stat().st_mode) == 0o600
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        monkeypatch.setattr(apply_socket, "ROOT", 4243)
        code, answer = await node.apply(pod("web"))
        assert (code, answer["reason"]) == (401, "Unauthorized")
        assert not node.directory.exists()


async def test_files_are_for_their_owner_alone(node: Node) -> None:
    async with node.sources():
        await node.apply(secret("s", {"password": "hunter2"}))
        assert stat.S_IMODE(node.directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((node.directory / "secret.default.s").stat().st_mode) == 0o600


async def test_no_value_of_a_secret_is_logged_or_listed(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    async with node.sources():
        await node.apply(secret("s", {"password": "hunter2"}))
        await node.apply({**secret("s", {}), "data": {"password": "hunter2!"}})
        await node.changed.until(bool)
        assert "hunter2" not in caplog.text + str(await node.send("GET", ""))


async def test_a_client_that_sends_no_body_costs_a_bounded_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_socket, "MAX_BODY_SECONDS", 0.2)
    async with node.sources():
        await node.send("GET", "")
        directory = os.open(node.run_dir, os.O_PATH)
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{SOCKET}")
        os.close(directory)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode())
        assert b"408" in await reader.readline()
        writer.close()


APPLIED = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: main, image: busybox, envFrom: [{secretRef: {name: s}}]}]
  volumes: [{name: v, configMap: {name: c}}]
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: one}}
- {apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: hunter2}}
"""


async def test_the_command_applies_lists_and_deletes_what_a_file_holds(node: Node, tmp_path: Path) -> None:
    out, err = list[str](), list[str]()
    file = tmp_path / "all.yaml"
    file.write_text(APPLIED)
    run_dir = str(node.run_dir)
    async with node.sources():
        await node.send("GET", "")
        assert await asyncio.to_thread(apply_files, run_dir, [str(file)], "", out.append, err.append) == 0
        assert out == ["configmap/c created", "secret/s created", "pod/web created"], "pods come last"
        assert names(await node.desired.until(bool)) == ["web-n1"]
        out.clear()
        assert await asyncio.to_thread(list_applied, run_dir, "", "text", out.append, err.append) == 0
        assert [line.split() for line in out] == [
            ["KIND", "NAMESPACE", "NAME"],
            ["ConfigMap", "default", "c"],
            ["Pod", "default", "web"],
            ["Secret", "default", "s"],
        ]
        out.clear()
        names_of = ["web", "secret/s"]
        assert await asyncio.to_thread(delete_applied, run_dir, [], names_of, "", out.append, err.append) == 0
        assert (out, err) == (["pod/web deleted", "secret/s deleted"], [])
        assert await asyncio.to_thread(delete_applied, run_dir, [str(file)], [], "", out.append, err.append) == 1
        assert (out[2:], sorted(err)) == (
            ["configmap/c deleted"],
            ["Pod/default/web: Pod default/web not found", "Secret/default/s: Secret default/s not found"],
        )


async def test_the_command_sends_what_is_good_beside_what_is_bad(node: Node, tmp_path: Path) -> None:
    out, err = list[str](), list[str]()
    file = tmp_path / "all.json"
    large, other = config_map("large", {"a": "x" * (10 << 20)}), config_map("c", {"a": "é" * (1 << 18)})
    documents = config_map("..", {}), large, other
    file.write_text("\n---\n".join(orjson.dumps(document).decode() for document in documents))
    async with node.sources():
        await node.send("GET", "")
        run_dir = str(node.run_dir)
        assert await asyncio.to_thread(apply_files, run_dir, [str(file)], "team", out.append, err.append) == 1
        assert out == ["configmap/c created"]
        assert err[0].startswith("configmap/..: metadata.name: a lowercase RFC 1123 subdomain")
        assert err[1:] == [f"configmap/large: larger than the {MAX_APPLIED_BYTES} bytes an object may have"]
        assert [item["metadata"]["namespace"] for item in (await node.send("GET", ""))[1]["items"]] == ["team"]
