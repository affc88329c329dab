"""Redirects, listings, types, conditions and ranges of Go's file server."""

import pytest

from services.server.core.logs.served_file import (
    BadRangeError,
    BodyPart,
    content_type,
    http_date,
    listing,
    part_of,
    precondition,
    slash_redirect,
)

CHANGED = 1_700_000_000.75


@pytest.mark.parametrize(
    ("path", "directory", "target"),
    [
        ("/", True, None),
        ("/pods", True, "pods/"),
        ("/a/b/", True, None),
        ("/a/b", False, None),
        ("/a/b/", False, "../b"),
        ("/a/index.html", False, "./"),
    ],
)
def test_a_slash_at_the_end_is_for_directories(path: str, directory: bool, target: str | None) -> None:
    assert slash_redirect(path, directory=directory) == target


def test_a_listing_escapes_names() -> None:
    page = listing([("b<&>", False), ("a:b", False), ("dir", True), ("é ?", False), ("\udcff", False)])
    assert page.partition("<pre>\n")[2] == (
        '<a href="./a:b">a:b</a>\n'
        '<a href="b%3C&amp;%3E">b&lt;&amp;&gt;</a>\n'
        '<a href="dir/">dir/</a>\n'
        '<a href="%C3%A9%20%3F">é ?</a>\n'
        '<a href="%FF">\udcff</a>\n'
        "</pre>\n"
    )


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("syslog", b"Jan 1 a\n", "text/plain; charset=utf-8"),
        ("wtmp", b"a\0b", "application/octet-stream"),
        ("x.html", b"", "text/html; charset=utf-8"),
        ("x.json", b"{}", "application/json"),
        ("x.log.1.gz", b"\x1f\x8b\x08", "application/gzip"),
        ("empty", b"", "text/plain; charset=utf-8"),
    ],
)
def test_the_type_follows_the_name_then_the_content(name: str, head: bytes, kind: str) -> None:
    assert content_type(name, head) == kind


def test_conditions_compare_full_seconds() -> None:
    same, older = http_date(CHANGED), http_date(CHANGED - 10)
    assert same == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert precondition(CHANGED, same, "") == 304
    assert precondition(CHANGED, older, "") is None
    assert precondition(CHANGED, "", older) == 412
    assert precondition(CHANGED, "", same) is None
    assert precondition(CHANGED, "yesterday", "\0") is None


def test_a_time_that_no_calendar_has_is_the_nearest_one() -> None:
    assert http_date(1e18) == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert http_date(-1e18) == "Mon, 01 Jan 0001 00:00:00 GMT"


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("", BodyPart(0, 100)),
        ("bytes=0-9", BodyPart(0, 10, partial=True)),
        ("bytes=90-", BodyPart(90, 10, partial=True)),
        ("bytes=90-500", BodyPart(90, 10, partial=True)),
        ("bytes=-5", BodyPart(95, 5, partial=True)),
        ("bytes=-500", BodyPart(0, 100, partial=True)),
        ("bytes=0-1,5-6", BodyPart(0, 100)),
    ],
)
def test_a_range_is_a_part_of_the_file(asked: str, part: BodyPart) -> None:
    assert part_of(100, CHANGED, asked, "") == part


@pytest.mark.parametrize(
    "asked", ["bytes=", "bytes=-", "bytes=9-1", "bytes=100-", "lines=1-2", "bytes=" + "9" * 50 + "-"]
)
def test_a_range_outside_of_the_file_is_refused(asked: str) -> None:
    with pytest.raises(BadRangeError):
        part_of(100, CHANGED, asked, "")


def test_a_range_of_an_older_file_is_all_of_the_new_one() -> None:
    assert part_of(100, CHANGED, "bytes=0-1", http_date(CHANGED - 5)) == BodyPart(0, 100)
    assert part_of(100, CHANGED, "bytes=0-1", http_date(CHANGED)) == BodyPart(0, 2, partial=True)
