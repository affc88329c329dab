"""The full names of images, and which patterns cover them."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.images.image_repository import (
    CredentialLocation,
    is_named,
    is_of_default_registry,
    location,
    matches,
    registry_of,
    repository,
)

DIGEST = "@sha256:" + "0" * 64


def test_an_image_has_one_full_name(subtests: pytest.Subtests) -> None:
    for image, name in [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1.36", "docker.io/library/busybox"),
        (f"busybox:1{DIGEST}", "docker.io/library/busybox"),
        (f"busybox{DIGEST}", "docker.io/library/busybox"),
        ("team/app:2", "docker.io/team/app"),
        ("docker.io/busybox:1", "docker.io/library/busybox"),
        ("index.docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/team/app", "docker.io/team/app"),
        ("localhost/app:1", "localhost/app"),
        ("localhost:5000/app", "localhost:5000/app"),
        ("127.0.0.1:5000/a/b:3", "127.0.0.1:5000/a/b"),
        ("gcr.io/a/b/c:x", "gcr.io/a/b/c"),
        ("[::1]:5000/app:1", "[::1]:5000/app"),
        (f"registry.example/app{DIGEST}", "registry.example/app"),
        ("Registry/app:1", "Registry/app"),
    ]:
        with subtests.test(image):
            assert repository(image) == name
            assert repository(name) == name


def test_the_registry_is_host_and_port() -> None:
    assert registry_of(repository("127.0.0.1:5000/a/b:3")) == "127.0.0.1:5000"
    assert registry_of(repository("busybox")) == "docker.io"


def test_an_entry_of_a_docker_config_is_a_place(subtests: pytest.Subtests) -> None:
    for entry, found in [
        ("registry.example", CredentialLocation("registry.example", "")),
        ("https://registry.example", CredentialLocation("registry.example", "")),
        ("http://registry.example/", CredentialLocation("registry.example", "")),
        ("https://index.docker.io/v1/", CredentialLocation("index.docker.io", "")),
        ("https://registry.example/v2/", CredentialLocation("registry.example", "")),
        ("registry.example/v1/team", CredentialLocation("registry.example", "/team")),
        ("registry.example/v1", CredentialLocation("registry.example", "/v1")),
        ("registry.example:5000/team/app", CredentialLocation("registry.example:5000", "/team/app")),
        ("user:word@registry.example/x?y#z", CredentialLocation("registry.example", "/x")),
        ("*.registry.example", CredentialLocation("*.registry.example", "")),
        ("[::1]:5000/a", CredentialLocation("[::1]:5000", "/a")),
        ("a b", None),
        ("registry.example:port/x", None),
        ("a:1:2", None),
        ("registry\n", None),
    ]:
        with subtests.test(entry):
            assert location(entry) == found


def test_a_pattern_covers_names_part_by_part(subtests: pytest.Subtests) -> None:
    for pattern, name, covered in [
        ("registry.example", "registry.example/app", True),
        ("registry.example", "registry.example:443/app", False),
        ("registry.example:5000", "registry.example:5000/app", True),
        ("registry.example:5000", "registry.example/app", False),
        ("*.example", "registry.example/app", True),
        ("*.example", "a.b.example/app", False),
        ("*.*.example", "a.b.example/app", True),
        ("*", "localhost/app", True),
        ("*", "registry.example/app", False),
        ("reg*.example", "registry.example/app", True),
        ("r?gistry.example", "registry.example/app", True),
        ("r[a-f]gistry.example", "registry.example/app", True),
        ("r[^a-f]gistry.example", "registry.example/app", False),
        ("r[^x]gistry.example", "registry.example/app", True),
        ("r[z-a]gistry.example", "registry.example/app", False),
        ("r[egistry.example", "registry.example/app", False),
        ("registry.example/team", "registry.example/team/app", True),
        ("registry.example/team", "registry.example/teamwork", True),
        ("registry.example/team/", "registry.example/teamwork", False),
        ("registry.example/other", "registry.example/team/app", False),
        ("registry.example/t*", "registry.example/team/app", False),
        ("registry.Example", "registry.example/app", False),
        ("127.0.0.1:5000/a", "127.0.0.1:5000/a/b", True),
        ("docker.io", "docker.io/library/busybox", True),
        ("index.docker.io", "docker.io/library/busybox", False),
    ]:
        with subtests.test(pattern):
            assert matches(pattern, name) is covered


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("busybox", True),
        ("library/busybox", True),
        ("docker.io/library/busybox", True),
        ("index.docker.io/library/busybox", True),
        ("registry.example/app", False),
        ("registry:5000/app", False),
        ("/app", False),
    ],
)
def test_which_names_are_of_the_default_registry(name: str, default: bool) -> None:
    assert is_of_default_registry(name) is default


@pytest.mark.parametrize(
    "glob", ["*a" * 8 + "b", "*a" * 31 + "b", "*" * 2_000, "?" * 63, "[a-z]" * 63, "[^b]*" * 400, f"[{'a-z' * 600}]*"]
)
def test_a_pattern_costs_time_in_proportion_to_its_length(glob: str) -> None:
    before = process_time()
    for _ in range(10):
        matches(f"{glob}.example", f"{'a' * 63}.example/app")
    assert process_time() - before < 0.5


@given(st.text(alphabet="ab*?[^-]", max_size=12), st.text(alphabet="abc", max_size=8))
def test_a_pattern_covers_the_parts_of_the_definition(glob: str, part: str) -> None:
    assert matches(glob, part) is _covers(glob, part)


def _covers(glob: str, part: str) -> bool:
    """The definition, by trying every split."""
    if not glob:
        return not part
    if glob[0] == "*":
        return any(_covers(glob[1:], part[n:]) for n in range(len(part) + 1))
    if glob[0] == "[":
        bracket = re.match(r"\[(\^?)((?:[^\\\[\]-](?:-[^\\\[\]-])?)+)\]", glob)
        if bracket is None or not part:
            return False
        among = any(low <= part[0] <= (high or low) for low, high in re.findall(r"(.)(?:-(.))?", bracket[2]))
        return among is not bool(bracket[1]) and _covers(glob[bracket.end() :], part[1:])
    return bool(part) and glob[0] in ("?", part[0]) and _covers(glob[1:], part[1:])


def test_a_key_longer_than_any_place_is_none() -> None:
    assert location("a" * 2_048) is not None
    assert location("a" * 2_049) is None


@pytest.mark.parametrize(
    ("image", "same"),
    [
        ("busybox", True),
        ("busybox:latest", True),
        ("docker.io/library/busybox", True),
        ("index.docker.io/library/busybox:latest", True),
        ("busybox:1", False),
        ("r.test/library/busybox", False),
        ("busybox@sha256:" + 64 * "a", False),
    ],
)
def test_an_image_is_found_under_its_full_and_its_short_name(image: str, same: bool) -> None:
    assert is_named(image, ["docker.io/library/other:1", "docker.io/library/busybox:latest"]) is same
