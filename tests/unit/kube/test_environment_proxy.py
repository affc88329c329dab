"""The proxy of the environment, by the table that the rules of Go's package httpproxy give."""

import pytest

from shared.kube.environment_proxy import UnsupportedProxyError, proxy_of_environment

PROXY = "http://proxy.test:3128"


def test_which_hosts_are_reached_without_the_proxy(subtests: pytest.Subtests) -> None:
    for no_proxy, server, direct in [
        ("", "https://10.1.2.3:6443", False),
        ("", "https://localhost:6443", True),
        ("", "https://127.9.9.9", True),
        ("", "https://[::1]:6443", True),
        ("", "https://[::ffff:127.0.0.1]:6443", True),
        ("*", "https://10.1.2.3:6443", True),
        (" other.test , * ", "https://api.test", True),
        ("10.0.0.0/8", "https://10.1.2.3:6443", True),
        ("10.1.2.3/8", "https://10.200.0.1:6443", True),
        ("10.0.0.0/8", "https://11.1.2.3:6443", False),
        ("10.0.0.0/8", "https://api.test", False),
        ("10.0.0.0/255.0.0.0", "https://10.1.2.3", False),
        ("10.0.0.0/33", "https://10.1.2.3", False),
        ("fd00::/8", "https://[fd00::7]:6443", True),
        ("fd00::/8", "https://[fe80::7]:6443", False),
        ("10.1.2.3", "https://10.1.2.3:6443", True),
        ("10.1.2.3", "https://[::ffff:10.1.2.3]:6443", True),
        ("10.1.2.3:6443", "https://10.1.2.3:6443", True),
        ("10.1.2.3:443", "https://10.1.2.3", True),
        ("10.1.2.3:443", "https://10.1.2.3:6443", False),
        ("fd00::7", "https://[fd00::7]:6443", True),
        ("[fd00::7]:6443", "https://[fd00:0::7]:6443", True),
        ("[fd00::7]:443", "https://[fd00::7]:6443", False),
        ("[fd00::7]", "https://[fd00::7]:6443", False),
        ("2.3", "https://10.1.2.3", False),
        ("*.3", "https://10.1.2.3", False),
        ("example.com", "https://example.com:6443", True),
        ("example.com", "https://api.example.com:6443", True),
        ("example.com", "https://badexample.com:6443", False),
        ("EXAMPLE.com", "https://API.Example.COM", True),
        (".example.com", "https://api.example.com", True),
        (".example.com", "https://example.com", False),
        ("*.example.com", "https://a.b.example.com", True),
        ("*.example.com", "https://example.com", False),
        ("api.*.com", "https://api.example.com", False),
        ("example.com:6443", "https://api.example.com:6443", True),
        ("example.com:6443", "https://api.example.com", False),
        ("*.example.com:443", "https://api.example.com", True),
        ("bücher.test", "https://xn--bcher-kva.test", True),
        ("xn--bcher-kva.test", "https://api.bücher.test", True),
        (":6443", "https://api.test:6443", False),
        ("*:6443", "https://api.test:6443", False),
        (",,  ,", "https://api.test", False),
        ("[", "https://api.test", False),
        ("[:", "https://api.test", False),
    ]:
        with subtests.test(no_proxy):
            environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
            assert proxy_of_environment(server, environment) == ("" if direct else PROXY)


@pytest.mark.parametrize(
    ("environment", "server", "proxy"),
    [
        ({}, "https://api.test", ""),
        ({"HTTPS_PROXY": "a:1"}, "https://api.test", "http://a:1"),
        ({"HTTPS_PROXY": "https://a"}, "https://api.test", "https://a"),
        ({"https_proxy": "http://a"}, "https://api.test", "http://a"),
        ({"HTTPS_PROXY": "http://a", "https_proxy": "http://b"}, "https://api.test", "http://a"),
        ({"HTTPS_PROXY": "", "https_proxy": "http://b"}, "https://api.test", "http://b"),
        ({"HTTP_PROXY": "http://a"}, "https://api.test", ""),
        ({"HTTP_PROXY": "http://a", "HTTPS_PROXY": "http://b"}, "http://api.test", "http://a"),
        ({"ALL_PROXY": "http://a"}, "https://api.test", ""),
        ({"HTTPS_PROXY": "http://a", "no_proxy": "api.test"}, "https://api.test", ""),
        ({"HTTPS_PROXY": "http://a", "NO_PROXY": "x", "no_proxy": "api.test"}, "https://api.test", "http://a"),
    ],
)
def test_which_variable_names_the_proxy(environment: dict[str, str], server: str, proxy: str) -> None:
    assert proxy_of_environment(server, environment) == proxy


def test_a_socks_proxy_is_refused_in_one_line_with_a_remedy_and_without_its_password() -> None:
    environment = {"HTTPS_PROXY": "socks5://joe:hidden@proxy.test:1080", "NO_PROXY": "10.0.0.0/8"}
    with pytest.raises(UnsupportedProxyError, match=r"^HTTPS_PROXY names a proxy of socks5://.*\(set it to") as caught:
        proxy_of_environment("https://api.test", environment)
    assert "hidden" not in str(caught.value)
    assert proxy_of_environment("https://10.1.2.3", environment) == ""
