"""What files a secret, configMap, downwardAPI or projected volume has, and the kubelet's words for what is missing."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.volume.core.files.files_source import Files
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import (
    ContentError,
    FailureKind,
    FoundObject,
    FoundToken,
    PayloadFile,
    Problem,
    SetUpInputs,
    make_payload,
)
from services.volume.core.files.payload_paths import clean_paths, path_error
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.specs.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.registry import volume_spec

POD: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"b": "2", "a": 'print "x"'},
        "annotations": {"note": "n"},
    },
    "spec": {"serviceAccountName": "builder", "containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]},
}
SECRET = ObjectKey("Secret", "shop", "s")
CONFIG = ObjectKey("ConfigMap", "shop", "c")
TOKEN = TokenKey("shop", "builder", (), 3607, "web", "u1")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FOUND = SetUpInputs(
    objects={
        SECRET: FoundObject({"data": {"user": encoded("root"), "key": encoded("k")}}),
        CONFIG: FoundObject({"data": {"a": "1", "b": "2"}, "binaryData": {"bin": encoded("\0")}}),
    },
    tokens={TOKEN: FoundToken("jwt")},
)


def read(volume: dict[str, Any], node: Node, **spec: Any) -> VolumeSpec:
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "v", **volume}], **spec}}
    found = volume_spec(pod, "v", node)
    assert isinstance(found, VolumeSpec)
    return found


def files(volume: dict[str, Any], **spec: Any) -> Files:
    source = read(volume, Node(allocatable={"cpu": "4", "memory": "1Gi"}), **spec).source
    assert isinstance(source, Files)
    return source


def content(volume: dict[str, Any], gathered: SetUpInputs = FOUND, **spec: Any) -> dict[str, bytes]:
    return {path: file.content for path, file in make_payload(files(volume, **spec), gathered).items()}


def failure(volume: dict[str, Any], gathered: SetUpInputs = FOUND) -> str:
    with pytest.raises(ContentError) as error:
        make_payload(files(volume), gathered)
    return str(error.value)


def secret(**more: Any) -> dict[str, Any]:
    return {"secret": {"secretName": "s", "defaultMode": 0o644, **more}}


def config(**more: Any) -> dict[str, Any]:
    return {"configMap": {"name": "c", "defaultMode": 0o644, **more}}


def projected(*sources: dict[str, Any], mode: int | None = 0o644) -> dict[str, Any]:
    return {"projected": {"sources": list(sources), "defaultMode": mode}}


def downward(*items: dict[str, Any]) -> dict[str, Any]:
    return {"downwardAPI": {"items": list(items), "defaultMode": 0o644}}


def test_every_key_or_only_those_that_are_named() -> None:
    assert content(secret()) == {"user": b"root", "key": b"k"}
    assert content(secret(items=[{"key": "user", "path": "a/b"}])) == {"a/b": b"root"}
    assert content(config()) == {"a": b"1", "b": b"2", "bin": b"\0"}


def test_modes_are_the_items_or_the_volumes() -> None:
    items = [{"key": "user", "path": "x", "mode": 0o400}, {"key": "key", "path": "y"}]
    payload = make_payload(files(secret(items=items, defaultMode=0o440)), FOUND)
    assert {path: file.mode for path, file in payload.items()} == {"x": 0o400, "y": 0o440}


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        (secret(secretName="other"), 'secret "other" not found'),
        (config(name="x"), 'configmap "x" not found'),
        (secret(items=[{"key": "k9", "path": "p"}]), "references non-existent secret key: k9"),
        (config(items=[{"key": "k9", "path": "p"}]), "configmap references non-existent config key: k9"),
        (secret(defaultMode=None), "no defaultMode used, not even the default value for it"),
        (downward({"path": "p", "fieldRef": {"fieldPath": "spec.nodeName"}}), "unsupported fieldPath: spec.nodeName"),
        (
            projected({"clusterTrustBundle": {"path": "p"}}),
            "ClusterTrustBundle projection requires either name or signerName to be set",
        ),
        (
            projected({"clusterTrustBundle": {"path": "p", "name": "n"}}),
            "ClusterTrustBundle projection is not supported in static kubelet mode",
        ),
        (projected({"podCertificate": {}}), "unimplemented"),
        (
            projected({"secret": {"name": "x"}}, {"configMap": {"name": "y"}}, {"secret": {"name": "x"}}),
            '[secret "x" not found, configmap "y" not found]',
        ),
    ],
)
def test_what_is_missing_is_named_in_the_kubelets_text(volume: dict[str, Any], text: str) -> None:
    assert failure(volume) == text


def test_trust_anchors_are_a_file_that_only_the_pods_group_reads() -> None:
    volume = projected({"clusterTrustBundle": {"path": "ca.pem", "name": "roots"}})
    key = ObjectKey("ClusterTrustBundle", "", "roots")
    node = Node(gates=frozenset({"ClusterTrustBundleProjection"}))
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    found = SetUpInputs(objects={key: FoundObject({"spec": {"trustBundle": text}})})
    for group, mode in ((None, 0o644), (5, 0o600)):
        spec = read(volume, node, securityContext={} if group is None else {"fsGroup": group})
        assert spec.objects == {key}
        assert isinstance(spec.source, Files)
        assert make_payload(spec.source, found) == {"ca.pem": PayloadFile(text.encode(), mode)}


def test_a_missing_trust_bundle_is_an_error_unless_it_is_optional() -> None:
    key = ObjectKey("ClusterTrustBundle", "", "roots")
    gone = FoundObject(not_found=True, problem=Problem('clustertrustbundle.certificates.k8s.io "roots" not found'))
    node = Node(gates=frozenset({"ClusterTrustBundleProjection"}))

    def made(found: FoundObject = gone, **more: Any) -> Any:
        source = read(projected({"clusterTrustBundle": {"path": "ca.pem", "name": "roots", **more}}), node).source
        assert isinstance(source, Files)
        return make_payload(source, SetUpInputs(objects={key: found}))

    with pytest.raises(ContentError) as error:
        made()
    text = 'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "roots" not found'
    assert str(error.value) == text
    assert made(optional=True) == {"ca.pem": PayloadFile(b"", 0o644)}
    with pytest.raises(ContentError, match=r"^denied$"):
        made(FoundObject(problem=Problem("denied")), optional=True)


def test_optional_covers_an_absent_object_and_absent_keys_but_no_other_failure() -> None:
    absent = SetUpInputs(objects={SECRET: FoundObject(not_found=True, problem=Problem("gone"))})
    assert content(secret(optional=True), absent) == {}
    assert failure(secret(), absent) == "gone"
    items = [{"key": "k9", "path": "p"}, {"key": "user", "path": "u"}]
    assert content(secret(optional=True, items=items)) == {"u": b"root"}
    denied = SetUpInputs(objects={SECRET: FoundObject(problem=Problem("denied"))})
    assert failure(secret(optional=True), denied) == "denied"


def test_downward_fields_are_quoted_sorted_and_rounded_up() -> None:
    volume = downward(
        {"path": "./labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "a/one", "fieldRef": {"fieldPath": "metadata.labels['b']"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
    )
    assert content(volume) == {"labels": b'a="print \\"x\\""\nb="2"', "a/one": b"2", "cpu": b"2", "memory": b"1024"}


def test_only_what_rests_on_the_node_is_provisional() -> None:
    limit = downward({"path": "m", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"}})
    for volume, expected in ((limit, True), (secret(), False)):
        assert read(volume, Node(provisional=True)).provisional is expected


ACCESS = projected(
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
    {"configMap": {"name": "c", "items": [{"key": "a", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
)


def test_the_default_service_account_volume() -> None:
    assert content(ACCESS) == {"token": b"jwt", "ca.crt": b"1", "namespace": b"shop"}


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, PayloadFile(b"jwt", 0o644)),
        ({"fsGroup": 7}, PayloadFile(b"jwt", 0o600)),
        ({"runAsUser": 1000}, PayloadFile(b"jwt", 0o600, 1000)),
        ({"runAsUser": 0}, PayloadFile(b"jwt", 0o600, 0)),
    ],
)
def test_a_token_is_the_users_who_runs_the_pod(context: dict[str, int], expected: PayloadFile) -> None:
    assert make_payload(files(ACCESS, securityContext=context), FOUND)["token"] == expected


def test_there_is_a_user_of_the_volume_only_if_all_containers_have_the_same() -> None:
    def user(*users: int | None) -> int | None:
        containers = [{"securityContext": {"runAsUser": user} if user is not None else None} for user in users]
        return files(secret(), containers=containers).fs_user

    assert [user(5, 5), user(5, 6), user(5, None), user(None)] == [5, None, None, None]


def test_a_later_source_wins_over_an_earlier_one() -> None:
    item = [{"key": "user", "path": "p"}]
    volume = projected({"secret": {"name": "s", "items": item}}, {"configMap": {"name": "c", "items": []}})
    assert content(volume)["p"] == b"root"
    other = {"configMap": {"name": "c", "items": [{"key": "a", "path": "p"}]}}
    assert content(projected({"secret": {"name": "s", "items": item}}, other)) == {"p": b"1"}


def test_a_failure_is_expected_to_pass_only_if_all_of_it_is() -> None:
    lag, away, real = Problem("l", FailureKind.LAGGING), Problem("u", FailureKind.UNANSWERED), Problem("r")
    assert ContentError([lag, away]).kind is FailureKind.LAGGING
    assert ContentError([away]).kind is FailureKind.UNANSWERED
    assert ContentError([away, real]).kind is FailureKind.LASTING


def test_directories_for_mounts_of_other_volumes() -> None:
    mounts = [
        {"name": "v", "mountPath": "/etc/x"},
        {"name": "w", "mountPath": "/etc/x/y/z"},
        {"name": "w", "mountPath": "/etc/xy"},
        {"name": "w", "mountPath": "/etc"},
    ]
    assert files(secret(), containers=[{"name": "c", "volumeMounts": mounts}]).nested == ("y/z",)


def test_content_is_in_no_repr() -> None:
    texts = [repr(FOUND), repr(make_payload(files(secret()), FOUND)), repr(make_payload(files(ACCESS), FOUND))]
    assert not any(word in text for text in texts for word in ("root", encoded("root"), "jwt"))


@pytest.mark.parametrize("value", [None, 7, "not base64!", "Zg", ["Zg=="]])
def test_a_value_the_api_could_not_have_taken_is_an_error_without_the_value(value: Any) -> None:
    found = SetUpInputs(objects={SECRET: FoundObject({"data": {"user": value}})})
    assert "user" in failure(secret(), found)
    assert str(value) not in failure(secret(), found)


@pytest.mark.parametrize("volume", [downward(), secret(), config(), ACCESS])
def test_a_node_that_runs_alone_has_volumes_of_files(volume: dict[str, Any]) -> None:
    pod = {**POD, "spec": {"volumes": [{"name": "v", **volume}]}}
    assert isinstance(volume_spec(pod, "v", Node(alone=True)), VolumeSpec)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("a", ""),
        ("a/b..c/..d", ""),
        ("", 'must not be empty: ""'),
        ("/a", "must be relative path: /a"),
        ("a/../b", "must not contain '..': a/../b"),
        ("..a", "must not start with '..': ..a"),
        ("a" * 256, "filenames must be less than or equal to 255 characters"),
        ("a/" * 2049, "must be less than or equal to 4096 characters"),
        (".", "must name a file: '.'"),
    ],
)
def test_paths(path: str, error: str) -> None:
    assert path_error(path) == error


def test_one_bad_path_refuses_the_payload_and_good_ones_are_cleaned() -> None:
    file = PayloadFile(b"", 0o644)
    assert list(clean_paths({"a//b/./c": file})) == ["a/b/c"]
    with pytest.raises(ContentError, match=r"invalid path: must be relative path: /x"):
        clean_paths({"a": file, "/x": file})


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["items", "sources", "key", "path", "mode", "fieldRef", "fieldPath", "resourceFieldRef",
                         "serviceAccountToken", "secret", "name", "defaultMode", "divisor", "resource"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(["secret", "configMap", "downwardAPI", "projected"]), ODD, ODD)
def test_odd_objects_are_errors_and_never_crashes(kind: str, source: Any, data: Any) -> None:
    found = volume_spec({**POD, "spec": {"volumes": [{"name": "v", kind: source}]}}, "v", Node())
    if isinstance(found, Refused):
        return
    gathered = SetUpInputs(objects={key: FoundObject({"data": data}) for key in found.objects})
    assert isinstance(found.source, Files)
    try:
        clean_paths(make_payload(found.source, gathered))
    except ContentError as error:
        assert str(error)


OWNED = Node(allocatable={"cpu": "4"}, gates=frozenset({"AtomicWriteVolumeUserFields"}))
OF_FIELD = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
OF_TOKEN = {"path": "token", "expirationSeconds": 3607}


def owners(volume: dict[str, Any], node: Node = OWNED, **spec: Any) -> dict[str, int | None]:
    source = read(volume, node, **spec).source
    assert isinstance(source, Files)
    return {path: file.owner for path, file in make_payload(source, FOUND).items()}


def test_a_file_belongs_to_the_user_of_its_item_else_to_that_of_the_volume() -> None:
    items = [{"key": "user", "path": "u", "user": 1000}, {"key": "key", "path": "k"}]
    assert owners(secret(items=items)) == {"u": 1000, "k": None}
    assert owners(secret(items=items, defaultUser=2000)) == {"u": 1000, "k": 2000}
    assert owners(config(defaultUser=0)) == {"a": 0, "b": 0, "bin": 0}
    shown = {
        "downwardAPI": {
            "defaultMode": 0o644,
            "defaultUser": 7,
            "items": [OF_FIELD, {**OF_FIELD, "path": "n", "user": 8}],
        }
    }
    assert owners(shown) == {"name": 7, "n": 8}


def test_each_source_of_a_projected_volume_may_have_its_own_user() -> None:
    sources: list[dict[str, Any]] = [
        {"secret": {"name": "s", "items": [{"key": "key", "path": "k", "user": 1}]}},
        {"downwardAPI": {"items": [OF_FIELD]}},
        {"serviceAccountToken": {**OF_TOKEN, "user": 3}},
    ]
    volume = projected(*sources)
    volume["projected"]["defaultUser"] = 9
    assert owners(volume) == {"k": 1, "name": 9, "token": 3}


def test_a_token_belongs_to_the_user_of_the_pod_where_none_is_named() -> None:
    pod: dict[str, Any] = {"securityContext": {"runAsUser": 1234}}
    assert owners(projected({"serviceAccountToken": OF_TOKEN}), **pod) == {"token": 1234}
    assert owners(projected({"serviceAccountToken": {**OF_TOKEN, "user": 0}}), **pod) == {"token": 0}


def test_without_the_feature_gate_files_belong_to_root() -> None:
    items = [{"key": "user", "path": "u", "user": 1000}]
    assert owners(secret(items=items, defaultUser=2000), Node()) == {"u": None}


@pytest.mark.parametrize("user", [-1, 2**31, 2**70])
def test_a_user_that_no_file_can_have_is_an_error_of_set_up(user: int) -> None:
    source = read(secret(defaultUser=user), OWNED).source
    assert isinstance(source, Files)
    with pytest.raises(ContentError, match=f"user {user} is not from 0 to 2147483647"):
        make_payload(source, FOUND)
