"""Docker's files of credentials: their entries, and that other content is refused without being shown."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.images.docker_config import Credential, DockerConfigError, read_config_json, read_dockercfg


def packed(text: str, *, padded: bool = True) -> str:
    encoded = base64.b64encode(text.encode()).decode()
    return encoded if padded else encoded.rstrip("=")


def entry(**fields: Any) -> Credential:
    return read_dockercfg(json.dumps({"r": fields}).encode())["r"]


@pytest.mark.parametrize(
    ("fields", "user", "word"),
    [
        ({"username": "u", "password": "w"}, "u", "w"),
        ({"auth": packed("u:w")}, "u", "w"),
        ({"auth": packed("us:w")}, "us", "w"),
        ({"auth": packed("u:w", padded=False)}, "u", "w"),
        ({"auth": packed("us:wo", padded=False)}, "us", "wo"),
        ({"auth": packed("u:w:x")}, "u", "w:x"),
        ({"auth": packed(":")}, "", ""),
        ({"auth": "dTp3\n"}, "u", "w"),
        ({"username": "a", "password": "b", "auth": packed("u:w")}, "u", "w"),
        ({"username": "a", "password": "b", "auth": ""}, "a", "b"),
        ({"username": "a", "password": None, "auth": None}, "a", ""),
        ({"Username": "a", "PASSWORD": "b"}, "a", "b"),
        ({"password": "x", "Password": "b"}, "", "b"),
        ({}, "", ""),
        ({"identitytoken": 5, "username": "u"}, "u", ""),
    ],
)
def test_an_entry_has_user_and_password(fields: dict[str, Any], user: str, word: str) -> None:
    assert (entry(**fields).username, entry(**fields).password) == (user, word)


def test_an_error_does_not_show_the_value(subtests: pytest.Subtests) -> None:
    for text, why in [
        ("", "not valid JSON at line 1"),
        ("{", "not valid JSON at line 1"),
        ('{"auths": {"r": {"password": "hush"', "not valid JSON"),
        ("[]", "the document must be an object"),
        ('"hush"', "the document must be an object"),
        ('{"auths": ["hush"]}', "auths must be an object"),
        ('{"auths": {"r": "hush"}}', "entry 1 of auths must be an object"),
        ('{"auths": {"r": {"password": ["hush"]}}}', "password of entry 1 of auths must be a string"),
        ('{"auths": {"a": null, "r": {"auth": "hush!"}}}', "auth of entry 2 of auths is not base64"),
        (json.dumps({"auths": {"r": {"auth": packed("hush")}}}), "must be base64 of username:password"),
        ('{"auths": {"r": {"auth": "aHVza"}}}', "is not base64"),
        ('{"HttpHeaders": {"a": 1}}', "a value of HttpHeaders must be a string"),
    ]:
        with subtests.test(text):
            with pytest.raises(DockerConfigError, match=why) as error:
                read_config_json(text.encode())
            assert "hush" not in str(error.value)
            assert error.value.__cause__ is None


def test_auths_and_nothing_are_fine() -> None:
    assert read_config_json(b'{"auths": {"r": {"username": "u"}}, "credsStore": "x"}') == {"r": Credential("u")}
    assert read_config_json(b'{"auths": null}') == read_config_json(b"{}") == read_config_json(b"null") == {}
    assert read_dockercfg(b'{"r": null}') == {"r": Credential()}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["auths", "auth", "username", "password", "r", "HttpHeaders"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused(document: Any) -> None:
    content = json.dumps(document).encode()
    for read in (read_config_json, read_dockercfg):
        try:
            config = read(content)
        except DockerConfigError:
            continue
        assert all(isinstance(one, Credential) for one in config.values())


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for read in (read_config_json, read_dockercfg):
        try:
            assert isinstance(read(content), dict)
        except DockerConfigError:
            pass


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_user_and_a_password_come_back_from_auth(user: str, word: str) -> None:
    user = user.replace(":", "")
    for padded in (True, False):
        if both := packed(f"{user}:{word}", padded=padded):
            assert (entry(auth=both).username, entry(auth=both).password) == (user, word)


def test_nothing_of_a_credential_is_printed() -> None:
    assert "hush" not in repr(Credential("hush", "hush", "hush"))


def test_a_document_with_very_many_registries_is_refused() -> None:
    def document(entries: int) -> bytes:
        return json.dumps({"auths": {f"r{n}.example": {} for n in range(entries)}}).encode()

    assert len(read_config_json(document(1_000))) == 1_000
    with pytest.raises(DockerConfigError, match="auths has 1001 registries, at most 1000 are read"):
        read_config_json(document(1_001))
