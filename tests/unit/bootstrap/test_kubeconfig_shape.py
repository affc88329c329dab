"""Every way in which a kubeconfig's shape is wrong has its line; what is right comes out."""

from typing import Any

import pytest

from services.bootstrap.core.kubeconfig import read_current_context
from services.bootstrap.core.renewal import retry_delay, seconds_until_renewal
from tests.unit.bootstrap.kubeconfigs import kubeconfig

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "p", "interactiveMode": "Never"}


def test_files_are_relative_to_the_kubeconfig() -> None:
    user = {"client-certificate": "a/../n.crt", "client-key": "/k/n.key", "tokenFile": "t", "token": None}
    shape = read_current_context(kubeconfig(user, **{"certificate-authority": "ca.crt"}), "/etc/kubernetes")
    assert shape.problems == ()
    assert shape.files == ("/etc/kubernetes/ca.crt", "/etc/kubernetes/n.crt", "/k/n.key", "/etc/kubernetes/t")
    assert "token" not in shape.user


@pytest.mark.parametrize("document", [None, {}, {"apiVersion": "v1", "kind": "Config", "clusters": []}])
def test_an_effectively_empty_one_is_recognized(document: Any) -> None:
    assert read_current_context(document, "/").is_empty


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"current-context": ""}, "current-context is missing"),
        ({"current-context": "y"}, 'current-context is "y", which is not among the contexts (there are: x)'),
        ({"contexts": "none"}, "contexts is not a list of entries with a name"),
        ({"contexts": [7]}, "contexts is not a list of entries with a name"),
        ({"contexts": [{"name": "x", "context": 7}]}, 'contexts "x" has no context'),
        ({"contexts": [{"name": "x", "context": {"user": "u"}}]}, "the context's cluster is missing"),
        ({"clusters": []}, 'the context\'s cluster is "c", which is not among the clusters (there are: none)'),
        ({"users": None}, 'the context\'s user is "u", which is not among the users (there are: none)'),
        ({"users": [{"name": "u", "user": {}}, {"name": "u", "user": {}}]}, 'users has "u" twice'),
    ],
)
def test_a_missing_or_odd_part(change: dict[str, Any], line: str) -> None:
    [problem] = read_current_context({**kubeconfig(), **change}, "/").problems
    assert problem.startswith(line)
    assert problem.endswith(")")


@pytest.mark.parametrize("document", ["text", [1], 7, True])
def test_a_document_that_is_no_mapping(document: Any) -> None:
    [problem] = read_current_context(document, "/").problems
    assert problem.startswith("is not a kubeconfig")


@pytest.mark.parametrize(
    ("cluster", "line"),
    [
        ({"server": None}, "server is missing"),
        ({"server": "api:6443"}, "server is no URL of http or https"),
        ({"server": "https://:1"}, "server is no URL of http or https"),
        ({"server": "https://h:99999"}, "server is no URL of http or https"),
        ({"server": "https://joe:pass@h"}, "server is no URL of http or https"),
        ({"server": 7}, "server must be a string"),
        (
            {"proxy-url": "socks5://joe:pass@h:1"},
            "proxy-url names a SOCKS proxy, which is not supported (name the http://",
        ),
        ({"proxy-url": "ftp://h:1"}, "proxy-url is no URL of http or https"),
        ({"insecure-skip-tls-verify": "yes"}, "insecure-skip-tls-verify must be true or false"),
        ({"insecure-skip-tls-verify": True, "certificate-authority": "x"}, "insecure-skip-tls-verify and a cert"),
    ],
)
def test_a_bad_cluster(cluster: dict[str, Any], line: str) -> None:
    [problem] = read_current_context(kubeconfig(**cluster), "/").problems
    assert problem.startswith(line)
    assert "pass" not in problem


@pytest.mark.parametrize(
    ("user", "line"),
    [
        ({"username": "a", "password": "b"}, "basic authentication is not supported"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
        ({"as": "another-user"}, "impersonation is not supported"),
        ({"client-certificate": "x"}, "client-key is missing while client-certificate is given"),
        ({"client-key-data": "x"}, "client-certificate is missing while client-key is given"),
        ({"token": 7}, "token must be a string"),
        ({"exec": "p"}, "exec has no command"),
        ({"exec": {**EXEC, "command": ""}}, "exec has no command"),
        ({"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "exec.apiVersion must be one of"),
        ({"exec": {**EXEC, "interactiveMode": None}}, "exec.interactiveMode is missing"),
        ({"exec": {**EXEC, "interactiveMode": "Always"}}, "exec.interactiveMode is Always"),
        ({"exec": {**EXEC, "interactiveMode": "never"}}, "exec.interactiveMode must be"),
        ({"exec": {**EXEC, "args": [1]}}, "exec.args must be"),
        ({"exec": {**EXEC, "env": [{"name": "A"}]}}, "exec.env must be"),
        ({"exec": {**EXEC, "env": {"A": "b"}}}, "exec.env must be"),
    ],
)
def test_a_bad_user(user: dict[str, Any], line: str) -> None:
    [problem] = read_current_context(kubeconfig(user), "/").problems
    assert problem.startswith(line)


def test_a_plugin_is_asked_again_before_the_end_and_never_in_a_hurry() -> None:
    assert seconds_until_renewal(0, 1000) is None
    assert seconds_until_renewal(2000, 1000) == 800
    assert seconds_until_renewal(900, 1000) == 1
    assert seconds_until_renewal(1e12, 1000) == 86400


def test_pauses_grow_to_a_minute() -> None:
    assert [retry_delay(n) for n in (0, 1, 2, 3, 7, 1000)] == [None, 1, 2, 4, 60, 60]
    assert [retry_delay(n, without=True) for n in (0, 1, 4, 5, 1000)] == [None, 1, 8, 8, 8]
