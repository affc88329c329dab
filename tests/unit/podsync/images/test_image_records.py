"""Who may use an image that is already here: policies, records, and the kubelet's files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.images.docker_config import Credential
from services.podsync.core.images.image_records import (
    MAX_SECRETS,
    PullAccess,
    PulledRecord,
    RecordError,
    access_of,
    decide_access,
    decode_intent,
    decode_record,
    encode_intent,
    encode_record,
    file_name,
    merged,
    must_verify,
)
from services.podsync.core.images.keyring import AccountSource, SecretSource, TrackedCredential

IMAGE, NAME, REF = "r.example/app:1", "r.example/app", "sha256:abc"
SECRET = SecretSource("ns", "pull", "u1")
ACCOUNT = AccountSource("ns", "robot", "a1")
GOOD = Credential("u", "w")


def tracked(credential: Credential = GOOD, source: SecretSource | AccountSource | None = SECRET) -> TrackedCredential:
    return TrackedCredential(credential, source)


def recorded(*credentials: TrackedCredential | None, name: str = NAME) -> PulledRecord:
    record = None
    for credential in credentials:
        record = merged(record, REF, f"{name}:1", access_of(credential), "t0")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("policy", "image", "pulled_here", "verified"),
    [
        ("NeverVerify", IMAGE, True, False),
        ("NeverVerifyPreloadedImages", IMAGE, True, True),
        ("NeverVerifyPreloadedImages", IMAGE, False, False),
        ("AlwaysVerify", IMAGE, False, True),
        ("NeverVerifyAllowlistedImages", IMAGE, False, True),
        ("NeverVerifyAllowlistedImages", "r.example/free:2", True, False),
        ("NeverVerifyAllowlistedImages", "r.example/free/more:2", True, True),
        ("NeverVerifyAllowlistedImages", "r.example/open/more:2", True, False),
        ("NeverVerifyAllowlistedImages", "r.example/opening:2", True, True),
        ("NeverVerifyAllowlistedImages", "busybox:2", True, False),
        ("", IMAGE, True, False),
    ],
)
def test_each_policy_asks_for_proof_of_its_own_images(
    policy: str, image: str, pulled_here: bool, verified: bool
) -> None:
    allowed = ("r.example/free", "r.example/open/*", "docker.io/library/busybox")
    assert must_verify(policy, allowed, image, pulled_here=pulled_here) is verified


SAME_HASH = tracked(source=SecretSource("other", "pull", "u9"))
NEW_HASH = tracked(Credential("u", "new"))


def test_a_pod_shows_its_right_by_what_it_has(subtests: pytest.Subtests) -> None:
    for record, pod, allowed, learns in [
        (None, [tracked()], False, None),
        (PulledRecord(REF, "t", {}), [tracked()], False, None),
        (recorded(tracked(), name="r.example/other"), [tracked()], False, None),
        (PulledRecord(REF, "t", {NAME: PullAccess()}), [tracked()], False, None),
        (recorded(None), [], True, None),
        (recorded(tracked(source=None)), [], True, None),
        (recorded(tracked()), [tracked()], True, None),
        (recorded(tracked()), [], False, None),
        (recorded(tracked()), [tracked(Credential("x"), SecretSource("ns", "x", "u7"))], False, None),
        (recorded(tracked()), [SAME_HASH], True, access_of(SAME_HASH)),
        (recorded(tracked()), [NEW_HASH], True, access_of(NEW_HASH)),
        (recorded(tracked()), [tracked(Credential("x"), SecretSource("ns", "pull", "u2"))], False, None),
        (recorded(tracked(source=ACCOUNT)), [tracked(Credential("other"), ACCOUNT)], True, None),
        (recorded(tracked(source=ACCOUNT)), [tracked(source=AccountSource("ns", "robot", "a2"))], False, None),
        (recorded(tracked()), [tracked(source=None)], False, None),
    ]:
        with subtests.test(f"{record!r:.80}"):
            verdict = decide_access(record, IMAGE, pod)
            assert (verdict.allowed, verdict.learn) == (allowed, learns)


def test_a_record_does_not_grow_without_end_by_looking() -> None:
    many = [tracked(source=SecretSource("ns", f"s{n}", f"u{n}")) for n in range(MAX_SECRETS)]
    verdict = decide_access(recorded(*many), IMAGE, [SAME_HASH])
    assert verdict.allowed
    assert verdict.learn is None
    assert decide_access(recorded(*many[1:]), IMAGE, [SAME_HASH]).learn == access_of(SAME_HASH)


def test_rights_are_added_and_access_for_all_pods_replaces_them() -> None:
    both = recorded(tracked(), SAME_HASH, tracked(source=ACCOUNT))
    assert [secret.uid for secret, _ in both.mapping[NAME].secrets] == ["u1", "u9"]
    assert both.mapping[NAME].accounts == (ACCOUNT,)
    assert recorded(tracked(), None).mapping[NAME] == PullAccess(all_pods=True)
    assert recorded(None, tracked()).mapping[NAME] == PullAccess(all_pods=True)
    again = recorded(tracked(), NEW_HASH).mapping[NAME].secrets
    assert again == ((SECRET, NEW_HASH.hash),)


def test_a_known_right_leaves_the_record_unchanged() -> None:
    record = recorded(tracked())
    assert merged(record, REF, IMAGE, access_of(tracked()), "t1") is record
    assert merged(record, REF, IMAGE, None, "t1") is record
    assert merged(record, REF, IMAGE, access_of(SAME_HASH), "t1").updated == "t1"
    other = merged(record, REF, "r.example/alias:1", access_of(None), "t1")
    assert sorted(other.mapping) == ["r.example/alias", NAME]
    assert merged(None, REF, IMAGE, None, "t1") == PulledRecord(REF, "t1", {})


def test_the_files_are_the_kubelets() -> None:
    """Written out by hand from the reference."""
    assert json.loads(encode_intent(IMAGE)) == {
        "kind": "ImagePullIntent",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "image": IMAGE,
    }
    record = merged(recorded(tracked(), tracked(source=ACCOUNT)), REF, "free:1", access_of(None), "t1")
    secret = {"uid": "u1", "namespace": "ns", "name": "pull", "credentialHash": tracked().hash}
    assert json.loads(encode_record(record)) == {
        "kind": "ImagePulledRecord",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "lastUpdatedTime": "t1",
        "imageRef": REF,
        "credentialMapping": {
            "docker.io/library/free": {"nodePodsAccessible": True},
            NAME: {
                "kubernetesSecrets": [secret],
                "kubernetesServiceAccounts": [{"uid": "a1", "namespace": "ns", "name": "robot"}],
            },
        },
    }
    assert decode_record(encode_record(record)) == record
    assert decode_intent(encode_intent(IMAGE)) == IMAGE
    assert file_name("x") == "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_no_credential_is_in_a_record() -> None:
    record = recorded(tracked(Credential("hush", "hush-hush")))
    assert b"hush" not in encode_record(record)


def test_records_of_the_earlier_version_are_read() -> None:
    older = encode_record(recorded(None)).replace(b"v1beta1", b"v1alpha1")
    assert decide_access(decode_record(older), IMAGE, []).allowed


HEAD = b'{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"x",'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v9","imageRef":"x"}',
        b'{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"x"}',
        b'{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1"}',
        HEAD + b'"credentialMapping":[1]}',
        HEAD + b'"credentialMapping":{"a":{"kubernetesSecrets":{"b":1}}}}',
        HEAD + b'"credentialMapping":{"a":{"kubernetesServiceAccounts":5}}}',
    ],
)
def test_what_is_no_record_is_refused(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(content)


WORDS = st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["credentialMapping", "imageRef", "lastUpdatedTime"]), JSON))
def test_any_document_is_a_record_or_is_refused(members: dict[str, object]) -> None:
    mapping = members.get("credentialMapping")
    entry = {"kubernetesSecrets": mapping, "kubernetesServiceAccounts": members.get("imageRef")}
    head = {"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1", "imageRef": "x"}
    for document in ({**head, **members}, {**head, "credentialMapping": {"a": entry}}):
        try:
            record = decode_record(json.dumps(document).encode())
        except RecordError:
            continue
        assert decode_record(encode_record(record)) == record
