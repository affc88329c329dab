"""Who asks, and whether they may."""

import pytest

from services.server.core.access.authentication import ANONYMOUS, User, authenticate, certificate_user
from services.server.core.access.authorization import error, forbidden, questions

ADMIN = User("admin", ("system:masters",))


def test_a_certificate_names_user_groups_and_credential() -> None:
    subject = ((("organizationName", "system:masters"),), (("organizationName", "ops"),), (("commonName", "api"),))
    user = certificate_user(subject, "ab12")
    assert user is not None
    assert user.name == "api"
    assert user.groups == ("system:masters", "ops", "system:authenticated")
    assert user.extra == {"authentication.kubernetes.io/credential-id": ("X509SHA256=ab12",)}


@pytest.mark.parametrize("names", [(), ((("commonName", ""),),)])
def test_a_certificate_without_a_common_name_names_no_user(names: tuple[tuple[tuple[str, str], ...], ...]) -> None:
    assert certificate_user(((("organizationName", "system:masters"),), *names), "ab12") is None


@pytest.mark.parametrize(
    ("certificate", "failed", "anonymous", "expected"),
    [
        (ADMIN, False, False, ADMIN),
        (ADMIN, True, False, ADMIN),  # the first success wins over another credential's failure
        (None, False, True, ANONYMOUS),
        (None, False, False, None),
        (None, True, True, None),  # a bad credential is not anonymous
    ],
)
def test_union_of_authenticators(
    certificate: User | None, failed: bool, anonymous: bool, expected: User | None
) -> None:
    assert authenticate(certificate, failed=failed, anonymous=anonymous) == expected


@pytest.mark.parametrize(("path", "subresources"), [("/pods/x", ["pods", "proxy"]), ("/podsx", ["proxy"])])
def test_subresources_of_paths_that_are_no_route(path: str, subresources: list[str]) -> None:
    assert [question.subresource for question in questions(ADMIN, "GET", path, "n")] == subresources


def test_the_verb_follows_the_method() -> None:
    verbs = [
        questions(ADMIN, method, "/pods", "n")[0].verb for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
    ]
    assert verbs == ["get", "create", "update", "patch", "delete", ""]


def test_refusals_read_as_the_kubelets() -> None:
    asked = questions(ADMIN, "GET", "/pods", "n")
    assert forbidden(asked) == "Forbidden (user=admin, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    assert error(asked[0]) == "Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)"
