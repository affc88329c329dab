"""Which credentials an image gets, in which order, and what is made of one."""

import hashlib

import pytest

from services.podsync.core.images.docker_config import Credential
from services.podsync.core.images.keyring import (
    SecretSource,
    SourcedConfig,
    TrackedCredential,
    credential_hash,
    lookup,
)

SECRET, OTHER = SecretSource("ns", "one", "u1"), SecretSource("ns", "two", "u2")


def users(image: str, *configs: dict[str, str]) -> list[str]:
    """The users that are tried, of keyrings written as place -> user."""
    entries = [SourcedConfig({place: Credential(user) for place, user in config.items()}) for config in configs]
    return [tracked.credential.username for tracked in lookup(entries, image)]


@pytest.mark.parametrize(
    ("image", "config", "tried"),
    [
        ("r.example/team/app", {"r.example": "all", "r.example/team": "team", "r.example/x": "x"}, ["team", "all"]),
        ("r.example/app", {"*.example": "glob", "r.example": "name"}, ["name", "glob"]),
        ("r.example/app", {"https://r.example/v1/": "v1", "r.example": "bare"}, ["v1", "bare"]),
        ("r.example/app", {"q.example": "other"}, []),
        ("r.example/app", {"index.docker.io": "hub"}, []),
        ("docker.io/library/app", {"https://index.docker.io/v1/": "hub"}, ["hub"]),
        ("docker.io/library/app", {"https://index.docker.io/v1/": "hub", "docker.io": "name"}, ["name"]),
        ("docker.io/library/app", {"r.example": "other"}, []),
        ("r.example/app", {"r.example ": "bad", "r.example": "good"}, ["good"]),
    ],
)
def test_more_specific_places_come_first(image: str, config: dict[str, str], tried: list[str]) -> None:
    assert users(image, config) == tried


def test_several_secrets_for_one_place_are_tried_in_their_order_behind_a_more_specific_place() -> None:
    assert users("r.example/team/app", {"r.example": "first"}, {"r.example/team": "second"}) == ["second", "first"]
    assert users("r.example/app", {"r.example": "b"}, {"https://r.example": "a"}, {"r.example": "c"}) == ["b", "a", "c"]


def test_a_credential_knows_the_secret_it_is_from() -> None:
    config = {"r.example": Credential("u", "w")}
    found = lookup(
        [SourcedConfig(config, SECRET), SourcedConfig(config, OTHER), SourcedConfig(config)],
        "r.example/app",
    )
    assert [one.source for one in found] == [SECRET, OTHER, None]


@pytest.mark.parametrize(
    ("credential", "text"),
    [
        (Credential("u", "w"), '{"username":"u","password":"w"}'),
        (Credential("u", "w", "e@x"), '{"username":"u","password":"w","email":"e@x"}'),
        (Credential(), "{}"),
        (Credential("<&>", 'a"b\\'), '{"username":"\\u003c\\u0026\\u003e","password":"a\\"b\\\\"}'),
        (Credential("ü", "\u2028"), '{"username":"ü","password":"\\u2028"}'),
    ],
)
def test_the_hash_is_that_of_gos_json(credential: Credential, text: str) -> None:
    assert credential_hash(credential) == hashlib.sha256(text.encode()).hexdigest()


def test_the_runtime_gets_user_and_password_and_nothing_empty() -> None:
    assert TrackedCredential(Credential("u", "w", "e")).auth == {"username": "u", "password": "w"}
    assert TrackedCredential(Credential()).auth == {}


def test_nothing_of_a_credential_is_printed() -> None:
    credential = Credential("hush", "hush")
    assert "hush" not in f"{TrackedCredential(credential, SECRET)} {SourcedConfig({'hush': credential}, SECRET)}"
