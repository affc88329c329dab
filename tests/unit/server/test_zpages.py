"""/statusz and /flagz: which representation a client gets, and what is in it."""

from datetime import UTC, datetime, timedelta

import pytest

from services.server.core.pages.zpages import (
    DELIMITERS,
    TEXT,
    Page,
    Representation,
    flagz_object,
    flagz_text,
    not_acceptable,
    representation,
    statusz_object,
    statusz_text,
)

STARTED = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NOW = STARTED + timedelta(hours=27, minutes=2, seconds=3)
JSON = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"


def test_the_accept_header_selects_the_representation(subtests: pytest.Subtests) -> None:
    for accept, expected in [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("text/*;q=0.1, image/png", TEXT),
        (JSON, Representation("application/json", "v1beta1")),
        (JSON.replace("v1beta1", "v1alpha1"), Representation("application/json", "v1alpha1")),
        (JSON.replace("json", "yaml"), Representation("application/yaml", "v1beta1")),
        (f"text/plain;q=0.5, {JSON}", Representation("application/json", "v1beta1")),
        (f"text/plain, {JSON};q=0.5", TEXT),
        ("application/json", None),
        (JSON.replace("Statusz", "Flagz"), None),
        (JSON.replace("v1beta1", "v2"), None),
        (JSON.replace("config.k8s.io", "other"), None),
        ("text/html", None),
        ("text/plain;q=0", None),
        ("text/plain;q=x", None),
        (";;;,,=,", None),
    ]:
        with subtests.test(accept):
            assert representation(accept, Page.STATUSZ) == expected


def test_a_refusal_names_what_is_accepted() -> None:
    assert JSON in not_acceptable(Page.STATUSZ)
    assert "text/plain" in not_acceptable(Page.FLAGZ)


@pytest.mark.parametrize("mark", DELIMITERS)
def test_statusz_as_text(mark: str) -> None:
    lines = statusz_text(STARTED, NOW, "none", "1.36.0", ["/metrics", "/healthz"], mark).split("\n")
    assert lines[:2] == ["", "kubelet statusz"]
    assert lines[2].startswith("Warning: This endpoint is not meant to be machine parseable")
    assert lines[4:] == [
        f"Started{mark}Wed Mar  4 05:06:07 UTC 2026",
        f"Up{mark}27 hr 02 min 03 sec",
        f"Go version{mark}none",
        f"Binary version{mark}1.36.0",
        f"Paths{mark}/healthz /metrics",
        "",
    ]


def test_statusz_as_an_object() -> None:
    assert statusz_object(STARTED, NOW, "none", "1.36.0", ["/metrics", "/healthz"], "v1beta1") == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kubelet"},
        "startTime": "2026-03-04T05:06:07Z",
        "uptimeSeconds": 97323,
        "goVersion": "none",
        "binaryVersion": "1.36.0",
        "paths": ["/healthz", "/metrics"],
    }


def test_flagz_in_both_forms_is_sorted() -> None:
    flags = {"v": "2", "address": "0.0.0.0"}
    text = flagz_text(flags, "=").split("\n")
    assert (text[1], text[4:]) == ("kubelet flagz", ["address=0.0.0.0", "v=2", ""])
    page = flagz_object(flags, "v1alpha1")
    assert (page["kind"], page["apiVersion"]) == ("Flagz", "config.k8s.io/v1alpha1")
    assert list(page["flags"].items()) == [("address", "0.0.0.0"), ("v", "2")]
