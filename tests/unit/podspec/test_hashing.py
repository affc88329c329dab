"""The hashes others read are those of the reference; ours are the same for equal contents."""

import pytest

from shared.model.objects import Object
from shared.podspec.go_json import go_json
from shared.podspec.hashing import backoff_key, container_hash, content_hash, fnv32a, fnv64a, fnv128a


@pytest.mark.parametrize(
    ("data", "in_32", "in_64", "in_128"),
    [
        (b"", 0x811C9DC5, 0xCBF29CE484222325, 0x6C62272E07BB014262B821756295C58D),
        (b"a", 0xE40C292C, 0xAF63DC4C8601EC8C, 0xD228CB696F1A8CAF78912B704E4A8964),
        (b"foobar", 0xBF9CF968, 0x85944171F73967E8, 0x343E1662793C64BF6F0D3597BA446F18),
    ],
)
def test_fnv_1a_gives_its_published_values(data: bytes, in_32: int, in_64: int, in_128: int) -> None:
    assert (fnv32a(data), fnv64a(data), fnv128a(data)) == (in_32, in_64, in_128)


def test_the_checksum_of_checkpoints_is_the_reference_vector() -> None:
    resources = '{"requests":{"cpu":"1Ki","memory":"1Ki"}}'
    data = f'{{"entries":{{"pod1":{{"ContainerResources":{{"container1":{resources}}}}}}}}}'
    assert fnv32a(f"(string){data}".encode()) == 1178570812


@pytest.mark.parametrize(
    ("container", "wanted"),
    [
        ({"name": "test_container", "image": "foo/image:v1"}, "8e45cbd0"),
        ({"name": "c", "image": "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", "command": ["x"]}, "a6dd0ded"),
        ({"name": "c", "image": "registry.k8s.io/e2e-test-images/nonroot:1.5"}, "aa72a1a0"),
    ],
)
def test_the_container_hash_is_gos(container: Object, wanted: str) -> None:
    assert container_hash(container) == wanted


def test_json_is_escaped_as_go_escapes_it() -> None:
    assert go_json({"b": "<a>&\u2028\u2029", "a": 'ü"\\\n\x01'}) == (
        '{"b":"\\u003ca\\u003e\\u0026\\u2028\\u2029","a":"ü\\"\\\\\\n\\u0001"}'
    )
    assert go_json("\ud800") == '"\ufffd"'


def test_a_containers_image_that_is_no_unicode_still_has_a_hash() -> None:
    assert container_hash({"name": "c", "image": "\ud800"})


def test_content_hashes_ignore_the_order_of_keys_and_nothing_else() -> None:
    assert content_hash({"a": 1, "b": [1, 2]}, "x") == content_hash({"b": [1, 2], "a": 1}, "x")
    assert len({content_hash({"a": 1}), content_hash({"a": 2}), content_hash({"a": 1}, "host:n")}) == 3


def test_another_image_or_other_resources_start_the_back_off_afresh() -> None:
    pod: Object = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}
    plain: Object = {"name": "c", "image": "i", "resources": {}}
    keys = {
        backoff_key(pod, plain),
        backoff_key(pod, {**plain, "image": "j"}),
        backoff_key(pod, {**plain, "resources": {"limits": {"cpu": "1"}}}),
        backoff_key({"metadata": {**pod["metadata"], "uid": "v"}}, plain),
    }
    assert len(keys) == 4
    assert backoff_key(pod, {**plain, "command": ["x"]}) == backoff_key(pod, plain)
