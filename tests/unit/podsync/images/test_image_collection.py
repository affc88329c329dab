"""Which unused images are removed, in which order, and how much must become free (node.md 6.1)."""

import pytest

from services.podsync.core.images.image_collection import (
    ImageGCPolicy,
    ImageHistory,
    bytes_to_free,
    human_size,
    is_used,
    names_of,
    not_freed,
    removable,
    too_old,
    updated,
)
from shared.cri.interface import ImageStatus


def image(name: str, *, pinned: bool = False) -> ImageStatus:
    return ImageStatus(id=f"id-{name}", size=1, repo_tags=(f"{name}:1",), repo_digests=(f"{name}@d",), pinned=pinned)


def policy(high: int = 85, low: int = 80, maximum_age: float = 0.0) -> ImageGCPolicy:
    return ImageGCPolicy(minimum_age=120.0, maximum_age=maximum_age, high_percent=high, low_percent=low)


A, B, C = image("a"), image("b"), image("c")


def test_an_image_that_vanished_is_forgotten_and_a_new_one_is_as_old_as_its_first_look() -> None:
    before = updated({}, [A, B], frozenset(), 10.0)
    assert updated(before, [B, C], {"id-b"}, 50.0) == {
        "id-b": ImageHistory(first_seen=10.0, last_used=50.0),
        "id-c": ImageHistory(first_seen=50.0),
    }


@pytest.mark.parametrize("name", ["id-a", "a:1", "a@d"])
def test_an_image_is_in_use_by_its_id_and_by_each_of_its_names(name: str) -> None:
    assert is_used(A, {name}) and not is_used(B, {name})


def test_the_image_not_used_for_longest_goes_first_and_never_used_ones_before_all() -> None:
    histories = {
        "id-a": ImageHistory(first_seen=0.0, last_used=300.0),
        "id-b": ImageHistory(first_seen=5.0),
        "id-c": ImageHistory(first_seen=0.0, last_used=200.0),
    }
    assert removable([A, B, C], histories, frozenset(), 1000.0, 120.0) == [B, C, A]


def test_used_pinned_and_young_images_stay() -> None:
    pinned = image("p", pinned=True)
    histories = updated({}, [A, B, pinned], frozenset(), 0.0) | updated({}, [C], frozenset(), 90.0)
    assert removable([A, B, C, pinned], histories, {"b:1"}, 200.0, 120.0) == [A]


def test_an_image_is_too_old_when_it_was_not_used_for_longer_than_the_maximum_age() -> None:
    histories = {
        "id-a": ImageHistory(first_seen=0.0, last_used=900.0),
        "id-b": ImageHistory(first_seen=0.0, last_used=100.0),
        "id-c": ImageHistory(first_seen=999.0),
    }
    assert too_old([A, B, C], histories, 1000.0, 500.0) == [B, C]


@pytest.mark.parametrize(
    ("capacity", "available", "wanted"),
    [
        (1000, 160, 0),  # 84 % used
        (1000, 150, 50),
        (1000, 0, 200),
        (1000, 5000, 0),
        (10**12, 10**11, 10**11),
    ],
)
def test_from_the_high_threshold_on_use_is_brought_down_to_the_low_one(
    capacity: int, available: int, wanted: int
) -> None:
    assert bytes_to_free(capacity, available, policy()) == wanted


def test_collection_is_off_without_a_threshold_and_an_age() -> None:
    assert policy(high=100).is_off
    assert not policy(high=100, maximum_age=1.0).is_off and not policy().is_off


def test_the_message_of_a_filesystem_that_stays_full() -> None:
    assert not_freed(200 * 10**9, 10 * 10**9, 7) == (
        "Insufficient free disk space on the node's image filesystem (95% of 200GB used). Failed to free sufficient "
        "space by deleting unused images (freed 7 bytes). Investigate disk usage, as it could be used by active "
        "images, logs, volumes, or other data."
    )
    assert [human_size(size) for size in (0, 999, 1500, 107374182400)] == ["0B", "999B", "1.5kB", "107.4GB"]


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1", "docker.io/library/nginx:1"),
        ("team/app@sha256:ab", "docker.io/team/app@sha256:ab"),
        ("registry:5000/app:2", "registry:5000/app:2"),
    ],
)
def test_a_volumes_image_is_in_use_by_its_reference_and_by_its_full_name(reference: str, full: str) -> None:
    assert names_of(reference) == {reference, full}
