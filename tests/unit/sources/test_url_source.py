"""A URL in logs has no secret."""

import pytest

from services.sources.core.url_source import shown_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:hunter2@example.org:8080/pods?token=hunter3#x", "http://example.org:8080/pods"),
        ("https://[::1]/a@b", "https://[::1]/a@b"),
        ("http://[", ""),
        ("hunter2", ""),
    ],
)
def test_a_shown_url_has_neither_user_nor_query(url: str, shown: str) -> None:
    assert shown_url(url) == shown
