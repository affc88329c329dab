"""ClusterTrustBundles: which of them a projection selects, and the file that their certificates become."""

import base64
from typing import Any

import pytest

from services.volume.core.files.trust_bundles import TrustBundleError, TrustBundlePart, trust_anchors, trust_bundle_part

SIGNER = "example.com/ca"


def pem(content: bytes, kind: str = "CERTIFICATE") -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(content).decode()}-----END {kind}-----\n"


def bundle(*contents: bytes, **labels: str) -> dict[str, Any]:
    text = "a comment\n" + "".join(map(pem, contents))
    return {"metadata": {"name": "b", "labels": labels}, "spec": {"signerName": SIGNER, "trustBundle": text}}


def part(**source: Any) -> TrustBundlePart:
    found = trust_bundle_part({"path": "ca.pem", **source})
    assert found is not None
    return found


ROOTS = [f"root certificate {number}".encode() for number in range(8)]


def test_a_bundle_by_name_gives_each_certificate_once_in_lines_of_64_characters() -> None:
    text = trust_anchors(part(name="b"), bundle(ROOTS[0] * 10, ROOTS[1], ROOTS[0] * 10), "u").decode()
    assert text.count("BEGIN CERTIFICATE") == 2
    assert max(map(len, text.splitlines())) == 64
    assert text.endswith("-----END CERTIFICATE-----\n")
    assert "comment" not in text


def test_the_order_differs_between_pods_and_stays_for_one() -> None:
    found = bundle(*ROOTS)
    orders = {trust_anchors(part(name="b"), found, f"pod-{number}") for number in range(10)}
    assert len(orders) > 1
    assert len({frozenset(order.split(b"-----BEGIN")) for order in orders}) == 1
    reversed_bundle = bundle(*reversed(ROOTS))
    assert trust_anchors(part(name="b"), found, "u") == trust_anchors(part(name="b"), reversed_bundle, "u")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, {0, 1, 2}),
        ({"matchLabels": {"stage": "live"}}, {0}),
        ({"matchExpressions": [{"key": "stage", "operator": "In", "values": ["live", "canary"]}]}, {0, 1}),
        ({"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["live"]}]}, {1, 2}),
        ({"matchExpressions": [{"key": "stage", "operator": "Exists"}]}, {0, 1}),
        ({"matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}, {2}),
        (
            {"matchLabels": {"stage": "live"}, "matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]},
            set(),
        ),
        ({"matchExpressions": [{"key": "stage", "operator": "Like", "values": ["l"]}]}, set()),
        (None, set()),
    ],
)
def test_bundles_of_a_signer_are_selected_by_their_labels(selector: Any, selected: set[int]) -> None:
    items = [bundle(ROOTS[0], stage="live"), bundle(ROOTS[1], stage="canary"), bundle(ROOTS[2])]
    source = part(signerName=SIGNER, **({} if selector is None else {"labelSelector": selector}), optional=True)
    text = trust_anchors(source, {"items": items}, "u").decode()
    assert {number for number, root in enumerate(ROOTS) if base64.b64encode(root).decode() in text} == selected


def test_no_selected_bundle_is_an_error_unless_the_source_is_optional() -> None:
    with pytest.raises(
        TrustBundleError, match=r"^combination of signerName and labelSelector matched zero ClusterTrust"
    ):
        trust_anchors(part(signerName=SIGNER, labelSelector={}), {"items": []}, "u")
    assert trust_anchors(part(signerName=SIGNER, labelSelector={}, optional=True), {"items": []}, "u") == b""


def test_a_source_without_bundle_and_signer_is_none() -> None:
    assert trust_bundle_part({"path": "p"}) is None


def test_a_bundle_of_any_shape_raises_nothing() -> None:
    for spec in (None, 3, {}, {"trustBundle": 3}, {"trustBundle": "-----BEGIN X-----\n?\n-----END X-----"}):
        assert trust_anchors(part(name="b"), {"spec": spec}, "u") == b""


def test_a_block_that_never_ends_hides_no_certificate_and_takes_no_longer_than_its_length() -> None:
    text = "-----BEGIN X-----\n" * 60_000  # 1 MiB; a search for each END takes a quarter of an hour
    found = {"spec": {"trustBundle": f"{text}-----BEGIN CERTIFICATE-----\n{pem(ROOTS[0])}"}}
    assert trust_anchors(part(name="b"), found, "u") == trust_anchors(part(name="b"), bundle(ROOTS[0]), "u")
