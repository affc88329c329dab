"""The request to a credential plugin, the meaning of its answer, and how long the answer holds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.images.credential_cache import PURGE_SECONDS, CredentialCache
from services.podsync.core.images.credential_plugin import (
    AccountIdentity,
    PluginAnswer,
    PluginAnswerError,
    is_for,
    read_answer,
    request_document,
    wanted_annotations,
)
from services.podsync.core.images.docker_config import Credential
from services.podsync.core.images.keyring import AccountSource
from shared.config.effective import CredentialProvider

API = "credentialprovider.kubelet.k8s.io/v1"
IMAGE = "r.example/app"
ACCOUNT = AccountSource("ns", "robot", "a1")


def provider(**fields: Any) -> CredentialProvider:
    own = {"name": "p", "match_images": ("*.example",), "default_cache_seconds": 60.0, "api_version": API}
    return CredentialProvider(**{**own, **fields})


def answer(**fields: Any) -> bytes:
    own = {"kind": "CredentialProviderResponse", "apiVersion": API, "cacheKeyType": "Image", "auth": {}}
    return json.dumps({name: value for name, value in {**own, **fields}.items() if value != "absent"}).encode()


def test_a_provider_is_asked_for_what_its_patterns_cover() -> None:
    assert is_for(provider(), IMAGE)
    assert not is_for(provider(), "r.other/app")
    assert is_for(provider(match_images=("a.b", "r.other")), "r.other/app")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_the_request_names_version_and_image(version: str) -> None:
    api = f"credentialprovider.kubelet.k8s.io/{version}"
    request = json.loads(request_document(provider(api_version=api), IMAGE, None))
    assert request == {"kind": "CredentialProviderRequest", "apiVersion": api, "image": IMAGE}


def test_the_request_carries_token_and_annotations() -> None:
    identity = AccountIdentity(ACCOUNT, {"a": "1"}, "tok")
    request = json.loads(request_document(provider(), IMAGE, identity))
    assert (request["serviceAccountToken"], request["serviceAccountAnnotations"]) == ("tok", {"a": "1"})
    assert "serviceAccountAnnotations" not in json.loads(request_document(provider(), IMAGE, AccountIdentity(ACCOUNT)))


@pytest.mark.parametrize(
    ("has", "given_to_it"),
    [
        ({"need": "1", "like": "2", "other": "3"}, {"like": "2", "need": "1"}),
        ({"need": "1"}, {"need": "1"}),
        ({"like": "2"}, None),
        ({}, None),
    ],
)
def test_a_plugin_gets_the_annotations_it_asks_for(has: dict[str, str], given_to_it: dict[str, str] | None) -> None:
    asking = provider(required_annotations=("need",), optional_annotations=("like",))
    assert wanted_annotations(asking, has) == given_to_it


def test_an_answer_is_a_docker_config_with_a_time() -> None:
    auth = {"r.example": {"username": "u", "password": "w"}, "*.x": None}
    read = read_answer(provider(), answer(auth=auth, cacheDuration="1m30s", further=1), None)
    assert read == PluginAnswer("Image", {"r.example": Credential("u", "w"), "*.x": Credential()}, 90.0)
    assert read_answer(provider(), answer(auth=None, cacheDuration=None), None) == PluginAnswer("Image", {}, None)
    assert "hush" not in repr(PluginAnswer("Image", {"hush": Credential("hush")}))


def test_an_answer_of_no_use_is_refused_without_being_shown(subtests: pytest.Subtests) -> None:
    for content, why in [
        (b"", "not valid JSON"),
        (b'{"hush', "not valid JSON"),
        (b'["hush"]', "no object"),
        (answer(apiVersion="credentialprovider.kubelet.k8s.io/v1beta1"), "its apiVersion is not"),
        (answer(apiVersion="hush"), "its apiVersion is not"),
        (answer(kind="CredentialProviderRequest"), "its kind is not"),
        (answer(cacheKeyType="image"), "its cacheKeyType is none of"),
        (answer(cacheKeyType="absent"), "its cacheKeyType is none of"),
        (answer(auth="hush"), "its auth is no object"),
        (answer(auth={"r": "hush"}), "an entry of its auth is no object"),
        (answer(auth={"r": {"password": ["hush"]}}), "is no string"),
        (answer(cacheDuration="hush"), "its cacheDuration is no duration"),
        (answer(cacheDuration=5), "its cacheDuration is no duration"),
    ]:
        with subtests.test(f"{content!r:.80}"):
            with pytest.raises(PluginAnswerError, match=why) as error:
                read_answer(provider(), content, None)
            assert "hush" not in str(error.value)


@pytest.mark.long
@given(st.binary(max_size=40) | st.dictionaries(st.text(max_size=4), st.integers()).map(lambda d: answer(auth=d)))
def test_any_output_is_read_or_refused(content: bytes) -> None:
    try:
        read_answer(provider(), content, None)
    except PluginAnswerError:
        pass


def test_a_token_given_back_as_a_password_needs_the_cache_type_for_it() -> None:
    identity = AccountIdentity(ACCOUNT, {}, "tok")
    echo = answer(auth={"r": {"username": "u", "password": "tok"}})
    with pytest.raises(PluginAnswerError, match="cacheType Token"):
        read_answer(provider(token_cache_type="ServiceAccount"), echo, identity)
    assert read_answer(provider(token_cache_type="Token"), echo, identity).config
    assert read_answer(provider(token_cache_type="ServiceAccount"), echo, None).config


def test_each_identity_is_an_answer_of_its_own() -> None:
    one = AccountIdentity(ACCOUNT, {"a": "1"}, "tok")
    others = [
        AccountIdentity(AccountSource("ns", "robot", "a2"), {"a": "1"}, "tok"),
        AccountIdentity(ACCOUNT, {"a": "2"}, "tok"),
        AccountIdentity(ACCOUNT, {}, "tok"),
    ]
    assert len({identity.scope(with_token=False) for identity in (one, *others)}) == 4
    renewed = AccountIdentity(ACCOUNT, {"a": "1"}, "new")
    assert renewed.scope(with_token=False) == one.scope(with_token=False)
    assert renewed.scope(with_token=True) != one.scope(with_token=True)
    assert "tok" not in repr(one) + one.scope(with_token=True)


# The cache

CONFIG = {"r.example": Credential("u", "w")}


@pytest.mark.parametrize(
    ("kind", "good_for", "not_for"),
    [
        ("Image", ["r.example/app"], ["r.example/other", "q.example/app"]),
        ("Registry", ["r.example/app", "r.example/other"], ["q.example/app", "r.example:5/app"]),
        ("Global", ["r.example/app", "q.example/app"], []),
    ],
)
def test_an_answer_holds_for_its_scope(kind: str, good_for: list[str], not_for: list[str]) -> None:
    cache = CredentialCache()
    cache.add(IMAGE, "", PluginAnswer(kind, CONFIG, 10.0), 99.0, now=0.0)
    assert all(cache.find(image, "", 9.9) == CONFIG for image in good_for)
    assert not any(cache.find(image, "", 9.9) for image in not_for)
    assert cache.find(IMAGE, "other", 9.9) is None
    assert cache.find(IMAGE, "", 10.0) is None


@pytest.mark.parametrize(
    ("seconds", "default", "until"), [(None, 20.0, 20.0), (5.0, 20.0, 5.0), (0.0, 20.0, 0.0), (None, 0.0, 0.0)]
)
def test_an_answer_holds_for_its_own_duration_or_the_providers(
    seconds: float | None, default: float, until: float
) -> None:
    cache = CredentialCache()
    cache.add(IMAGE, "", PluginAnswer("Image", CONFIG, seconds), default, now=0.0)
    assert (cache.find(IMAGE, "", until - 0.1) == CONFIG) is (until > 0)
    assert cache.find(IMAGE, "", until) is None
    assert len(cache) == (1 if until else 0)


def test_an_answer_for_the_image_comes_before_one_for_everything() -> None:
    cache = CredentialCache()
    cache.add(IMAGE, "", PluginAnswer("Global", {}, 10.0), 0.0, now=0.0)
    cache.add(IMAGE, "", PluginAnswer("Image", CONFIG, 5.0), 0.0, now=0.0)
    assert cache.find(IMAGE, "", 1.0) == CONFIG
    assert cache.find(IMAGE, "", 6.0) == {}


def test_what_is_over_is_thrown_away_now_and_then() -> None:
    cache = CredentialCache()
    for number in range(5):
        cache.add(f"r.example/{number}", "", PluginAnswer("Image", CONFIG, 10.0), 0.0, now=0.0)
    cache.find(IMAGE, "", 20.0)
    assert len(cache) == 5
    cache.find(IMAGE, "", PURGE_SECONDS)
    assert len(cache) == 0
    assert "w" not in repr(cache)
