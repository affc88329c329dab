"""The encoding of pods in protobuf, against that of a real API server: it reads from its store what the agent encoded,
and answers it as JSON and as protobuf."""

import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio
from google.protobuf.unknown_fields import UnknownFieldSet

from shared.plugin_grpc.pod_encoding import Field, decode_pod, encode_pod, message_fields
from tests.support.clusters.control_plane import ControlPlane
from tests.support.recorded.differences import assert_same
from tests.support.recorded.whole_pod import whole_message

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PROTOBUF = "application/vnd.kubernetes.protobuf"
# Fields of 1.20 that the table does not have: sources drops the first, and later releases have removed the others.
REMOVED = {"ObjectMeta.managedFields", "ObjectMeta.clusterName", "EphemeralVolumeSource.readOnly"}
LEAVES = ("", "i", "l", "b", "Time", "Quantity", "IntOrString")
REMOVED_NUMBERS = {15, 2}  # of the last two, which Go writes also when they are not set


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(
        tmp_path_factory.mktemp("cluster"), controllers="serviceaccount,serviceaccount-token"
    ) as running:
        yield running


async def test_a_pod_with_all_fields_at_once_is_what_the_api_server_reads_and_writes(cluster: ControlPlane) -> None:
    definitions = json.loads(await get(cluster, "/openapi/v2", "application/json"))["definitions"]
    lacking: set[str] = set()
    newer: set[str] = set()
    compare_with_schema("Pod", "io.k8s.api.core.v1.Pod", definitions, lacking, newer)
    assert lacking == REMOVED
    pod = consistent(whole_message())
    await store(cluster, "pods/default/whole", enveloped(encode_pod(pod)))
    answered = json.loads(await get(cluster, "/api/v1/namespaces/default/pods/whole", "application/json"))
    pod["metadata"]["resourceVersion"] = answered["metadata"]["resourceVersion"]
    lost: set[str] = set()
    assert_same(kept("Pod", pod, answered, lost), {key: answered[key] for key in ("metadata", "spec", "status")})
    assert lost == newer
    data = content(await get(cluster, "/api/v1/namespaces/default/pods/whole", PROTOBUF))
    assert_same(plain(decode_pod(encode_pod(answered))), plain(decode_pod(data)))
    assert unknown_numbers(decode_pod(data)) <= REMOVED_NUMBERS


def consistent(pod: dict[str, Any]) -> dict[str, Any]:
    """Fields that the API server derives from others have the values that it would give them."""
    spec, status = pod["spec"], pod["status"]
    spec["serviceAccount"] = spec["serviceAccountName"]
    status["podIP"] = status["podIPs"][0]["ip"]
    pod["metadata"] |= {"name": "whole", "namespace": "default"}
    return pod


def kept(kind: str, value: Any, answered: Any, lost: set[str]) -> Any:
    """Return the message without the fields that the answer lacks, whose names are added to `lost`."""
    fields, found = json_fields(kind), {}
    for name, item in value.items():
        if name not in answered:
            lost.add(f"{kind}.{name}")
            continue
        field = fields[name]
        if field.kind in LEAVES or field.of_map:
            found[name] = item
        elif field.repeated:
            found[name] = [kept(field.kind, a, b, lost) for a, b in zip(item, answered[name], strict=True)]
        else:
            found[name] = kept(field.kind, item, answered[name], lost)
    return found


def json_fields(kind: str) -> dict[str, Field]:
    """Return the fields of a message as JSON has them: also those of the messages that stand in it."""
    fields = message_fields(kind)
    inner = [each for one in fields.inline for each in message_fields(one.kind).by_name.values()]
    return {**fields.by_name, **{each.name: each for each in inner}}


def compare_with_schema(
    kind: str, definition: str, definitions: dict[str, Any], lacking: set[str], newer: set[str], *seen: str
) -> None:
    """Add to `lacking` the properties of the definition, and of those it refers to, that the table does not have, and
    to `newer` the fields of the table that the definitions do not have."""
    ours, theirs = json_fields(kind), definitions[definition].get("properties", {})
    lacking |= {
        f"{kind}.{name}" for name in theirs.keys() - ours.keys() - ({"kind", "apiVersion"} if not seen else set())
    }
    newer |= {f"{kind}.{name}" for name in ours.keys() - theirs.keys() if theirs}
    for name in theirs.keys() & ours.keys():
        reference = theirs[name].get("$ref") or theirs[name].get("items", {}).get("$ref")
        if reference and ours[name].kind not in LEAVES:
            referred = reference.removeprefix("#/definitions/")
            compare_with_schema(ours[name].kind, referred, definitions, lacking, newer, *seen, kind)


def plain(message: Any) -> dict[str, Any]:
    """Return the fields of a message that are not zero, which Go writes and JSON omits."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            item = list(value) if field.is_repeated else value
        elif field.message_type.GetOptions().map_entry:
            item = {key: plain(each) if hasattr(each, "ListFields") else each for key, each in value.items()}
        else:
            item = [plain(each) for each in value] if field.is_repeated else plain(value)
        if item:
            found[field.name] = item
    return found


def unknown_numbers(message: Any) -> set[int]:
    """Return the numbers of fields that the table does not have, in the message and below it."""
    numbers = {each.field_number for each in cast(Any, UnknownFieldSet(message))}
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                numbers |= unknown_numbers(each)
    return numbers


def enveloped(data: bytes) -> bytes:
    """Return an object as the API server stores it: a prefix, and runtime.Unknown with type, content and two texts."""
    length, number = b"", len(data)
    while number > 127:
        length, number = length + bytes([number & 127 | 128]), number >> 7
    return b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + length + bytes([number]) + data + b"\x1a\0\x22\0"


def content(answer: bytes) -> bytes:
    """Return the object in such an envelope."""
    start = len(b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12")
    length = shift = 0
    while True:
        byte = answer[start]
        length, shift, start = length | (byte & 127) << shift, shift + 7, start + 1
        if byte < 128:
            return answer[start : start + length]


async def store(cluster: ControlPlane, key: str, value: bytes) -> None:
    """Write the value to the API server's store, past all that it would refuse."""
    body = {"key": b64encode(f"/registry/{key}".encode()).decode(), "value": b64encode(value).decode()}
    url = f"http://127.0.0.1:{cluster.etcd_port}/v3/kv/put"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        answer.raise_for_status()


async def get(cluster: ControlPlane, path: str, accept: str) -> bytes:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.load_cert_chain(*cluster.authority.issue("reader", "reader", "system:masters"))
    url, headers = cluster.url + path, {"Accept": accept}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
        answer.raise_for_status()
        return await answer.read()
