"""Rules of the server, of images, pods, logging and tracing: each with a value that breaks it and one that does not."""

import pytest

from shared.config.findings import DANGER, ERROR, Findings
from shared.config.rules import check_listeners, check_open_access
from tests.unit.config.rule_checks import Case, effective, found, holds, named

LONG = "/" + "d" * 106


def options_of(form: str) -> list[Case]:
    """The cases of a log format's options."""
    return [
        ({f"logging.options.{form}.splitStream": True}, {}, f"logging.options.{form}.splitStream: is set while",
         {f"logging.options.{form}.splitStream": True}, {"LoggingAlphaOptions": True}),
        ({f"logging.options.{form}.infoBufferSize": "1m"}, {}, f"logging.options.{form}.infoBufferSize: is set",
         {f"logging.options.{form}.infoBufferSize": "64Ki"}, {"LoggingAlphaOptions": True}),
        ({f"logging.options.{form}.infoBufferSize": "x"}, {}, f'logging.options.{form}.infoBufferSize: is "x"',
         {f"logging.options.{form}.infoBufferSize": 0}, {}),
    ]  # fmt: skip


CASES: list[Case] = [
    # what is wrong, gates, the line's start; the good neighbour, its gates
    ({"address": "localhost"}, {}, 'address: is "localhost", must be an IP address', {"address": "::1"}, {}),
    ({"address": "fe80::1%eth0"}, {}, 'address: is "fe80::1%eth0", must be', {"address": "10.0.0.1"}, {}),
    ({"address": "x", "enableServer": False, "readOnlyPort": 1}, {}, 'address: is "x"',
     {"address": "x", "enableServer": False}, {}),
    ({"healthzBindAddress": "x"}, {}, 'healthzBindAddress: is "x", must be an IP',
     {"healthzBindAddress": "x", "healthzPort": 0}, {}),
    ({"containerRuntimeEndpoint": ""}, {}, "containerRuntimeEndpoint: is empty",
     {"containerRuntimeEndpoint": "/run/c.sock"}, {}),
    ({"containerRuntimeEndpoint": "tcp://1"}, {}, 'containerRuntimeEndpoint: is "tcp://1", must be a local socket',
     {"containerRuntimeEndpoint": "unix:/run/c.sock"}, {}),
    ({"imageServiceEndpoint": "unix://a/b"}, {}, 'imageServiceEndpoint: is "unix://a/b", must be a local',
     {"imageServiceEndpoint": ""}, {}),
    ({"imageServiceEndpoint": f"unix://{LONG}d"}, {}, "imageServiceEndpoint: is a path of 108 bytes, sockets have",
     {"imageServiceEndpoint": f"unix://{LONG}"}, {}),
    ({"tlsCipherSuites": ["tls_aes_128_gcm_sha256"]}, {}, 'tlsCipherSuites[0]: "tls_aes_128_gcm_sha256" is not a',
     {"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"]}, {}),
    ({"tlsCurvePreferences": [0]}, {}, "tlsCurvePreferences[0]: 0 is not a known curve (known are 23 (P-256)",
     {"tlsCurvePreferences": [23]}, {}),
    ({"tlsCurvePreferences": [4588]}, {}, "tlsCurvePreferences[0]: 4588 (X25519MLKEM768) cannot be chosen with",
     {"tlsCurvePreferences": [29]}, {}),
    ({"tlsCurvePreferences": [23, 29]}, {}, "tlsCurvePreferences: has 2 curves, of which Python's ssl takes one (name",
     {"tlsCurvePreferences": [25]}, {}),
    ({"tlsMinVersion": "VersionTLS11", "authentication.x509.clientCAFile": "/ca"}, {},
     "tlsMinVersion: is VersionTLS11, with which client certificates signed with SHA-1 would be accepted (set it to",
     {"tlsMinVersion": "VersionTLS11"}, {}),
    ({"tlsMinVersion": "VersionTLS10", "authentication.x509.clientCAFile": "/ca"}, {}, "tlsMinVersion: is VersionTLS10",
     {"tlsMinVersion": "VersionTLS12", "authentication.x509.clientCAFile": "/ca"}, {}),
    ({"tlsCurvePreferences": [29, 29]}, {}, "tlsCurvePreferences[1]: 29 is given twice",
     {"tlsCurvePreferences": []}, {}),
    ({"serverTLSBootstrap": True}, {"RotateKubeletServerCertificate": False},
     "serverTLSBootstrap: is true while feature gate RotateKubeletServerCertificate is off",
     {"serverTLSBootstrap": True}, {}),
    ({"enableSystemLogQuery": True}, {"NodeLogQuery": False}, "enableSystemLogQuery: is true while feature gate",
     {"enableSystemLogQuery": True}, {}),
    ({"enableSystemLogQuery": True, "enableSystemLogHandler": False}, {},
     "enableSystemLogQuery: is true while enableSystemLogHandler is false", {"enableSystemLogHandler": False}, {}),
    ({"showHiddenMetricsForVersion": "1.37"}, {}, 'showHiddenMetricsForVersion: is "1.37", must be the release before',
     {"showHiddenMetricsForVersion": "1.36"}, {}),
    # images and logs
    ({"maxParallelImagePulls": 2}, {}, "maxParallelImagePulls: is 2 while serializeImagePulls is true (set",
     {"maxParallelImagePulls": 1}, {}),
    ({"imageGCLowThresholdPercent": 85}, {}, "imageGCLowThresholdPercent: is 85, must be below the high threshold 85",
     {"imageGCLowThresholdPercent": 84}, {}),
    ({"imageMaximumGCAge": "2m0s"}, {}, "imageMaximumGCAge: is 2m0s, must be above imageMinimumGCAge 2m0s",
     {"imageMaximumGCAge": "2m0.000000001s"}, {}),
    ({"imageMaximumGCAge": "3m"}, {"ImageMaximumGCAge": False}, "imageMaximumGCAge: is set while feature gate",
     {"imageMaximumGCAge": "0s"}, {"ImageMaximumGCAge": False}),
    ({"imagePullCredentialsVerificationPolicy": "Always"}, {},
     'imagePullCredentialsVerificationPolicy: is "Always", must be one of NeverVerify, NeverVerifyPreloadedImages',
     {"imagePullCredentialsVerificationPolicy": "AlwaysVerify"}, {}),
    ({"imagePullCredentialsVerificationPolicy": "NeverVerify"}, {"KubeletEnsureSecretPulledImages": False},
     "imagePullCredentialsVerificationPolicy: is set while feature gate KubeletEnsureSecretPulledImages is off",
     {"imagePullCredentialsVerificationPolicy": None}, {"KubeletEnsureSecretPulledImages": False}),
    ({"imagePullCredentialsVerificationPolicy": None, "preloadedImagesVerificationAllowlist": ["a"]},
     {"KubeletEnsureSecretPulledImages": False}, "preloadedImagesVerificationAllowlist: is set while feature gate",
     {"preloadedImagesVerificationAllowlist": []}, {}),
    ({"preloadedImagesVerificationAllowlist": ["a"]}, {},
     "preloadedImagesVerificationAllowlist: is set while imagePullCredentialsVerificationPolicy is NeverVerifyPreload",
     {"preloadedImagesVerificationAllowlist": ["a"],
      "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"}, {}),
    ({"containerLogMaxSize": "ten"}, {}, 'containerLogMaxSize: is "ten", must be a quantity',
     {"containerLogMaxSize": "-1"}, {}),
    # pods
    ({"runOnce": True}, {}, "runOnce: is true without static pods (set staticPodPath or staticPodURL, or remove it)",
     {"runOnce": True, "staticPodPath": "/a"}, {}),
    ({"podLogsDir": "/a/b/"}, {}, 'podLogsDir: is "/a/b/", must be absolute and', {"podLogsDir": "/a/b"}, {}),
    ({"podLogsDir": "a"}, {}, 'podLogsDir: is "a", must be absolute', {"podLogsDir": "/a"}, {}),
    ({"podLogsDir": "/a/../b"}, {}, 'podLogsDir: is "/a/../b"', {"podLogsDir": "/a..b"}, {}),
    ({"podLogsDir": "/ä"}, {}, 'podLogsDir: is "/ä", must be ASCII only', {"podLogsDir": "/a b"}, {}),
    ({"crashLoopBackOff.maxContainerRestartPeriod": "999.999ms"}, {},
     'crashLoopBackOff.maxContainerRestartPeriod: is "999.999ms", must be from 1s to 300s',
     {"crashLoopBackOff.maxContainerRestartPeriod": "1s"}, {}),
    ({"crashLoopBackOff.maxContainerRestartPeriod": "5m0.001s"}, {}, "crashLoopBackOff.maxContainerRestartPeriod: is",
     {"crashLoopBackOff.maxContainerRestartPeriod": "5m0.000999s"}, {}),
    ({"crashLoopBackOff.maxContainerRestartPeriod": "10s"}, {"KubeletCrashLoopBackOffMax": False},
     "crashLoopBackOff.maxContainerRestartPeriod: is set while feature gate KubeletCrashLoopBackOffMax is off",
     {"crashLoopBackOff.maxContainerRestartPeriod": None}, {"KubeletCrashLoopBackOffMax": False}),
    ({"fileCheckFrequency": "0s", "staticPodPath": "/p"}, {}, 'fileCheckFrequency: is "0s", must be above 0',
     {"fileCheckFrequency": "0s"}, {}),
    ({"nodeStatusUpdateFrequency": "0s"}, {}, 'nodeStatusUpdateFrequency: is "0s", must be above 0',
     {"nodeStatusUpdateFrequency": "1ns"}, {}),
    ({"runtimeRequestTimeout": "0s"}, {}, 'runtimeRequestTimeout: is "0s", must be above 0',
     {"runtimeRequestTimeout": "1ns"}, {}),
    ({"httpCheckFrequency": "-1s", "staticPodURL": "http://a"}, {}, 'httpCheckFrequency: is "-1s", must be above 0',
     {"httpCheckFrequency": "-1s"}, {}),
    ({"userNamespaces.idsPerPod": 65537}, {}, "userNamespaces.idsPerPod: is 65537, must be a multiple of 65536",
     {"userNamespaces.idsPerPod": 131072}, {}),
    # logging and tracing
    ({"logging.format": "json", "logging.vmodule": [{"filePattern": "a", "verbosity": 1}]}, {},
     "logging.vmodule: is only for the text format", {"logging.vmodule": [{"filePattern": "a", "verbosity": 1}]}, {}),
    ({"logging.vmodule": [{"verbosity": 1}]}, {}, 'logging.vmodule[0]: filePattern is "", must be given',
     {"logging.format": "json", "logging.vmodule": []}, {}),
    ({"logging.vmodule": [{"filePattern": "a=b"}]}, {}, 'logging.vmodule[0]: filePattern is "a=b"',
     {"logging.vmodule": [{"filePattern": "a*b"}]}, {}),
    ({"logging.vmodule": [{"filePattern": "a,b"}]}, {}, 'logging.vmodule[0]: filePattern is "a,b"', {}, {}),
    ({"logging.vmodule": [{"filePattern": "a", "verbosity": 2**31}]}, {}, "logging.vmodule[0]: verbosity is 2147483648",
     {"logging.vmodule": [{"filePattern": "a", "verbosity": 2**31 - 1}]}, {}),
    ({"logging.flushFrequency": 0}, {}, "logging.flushFrequency: is 0, must be above 0",
     {"logging.flushFrequency": 1}, {}),
    *options_of("text"),
    *options_of("json"),
    ({"tracing.endpoint": "http://a:1"}, {}, 'tracing.endpoint: is "http://a:1", the scheme must be one of dns, unix,',
     {"tracing.endpoint": "dns://a:1"}, {}),
    ({"tracing.endpoint": "a:port"}, {}, 'tracing.endpoint: is "a:port", which is no endpoint',
     {"tracing.endpoint": "localhost:4317"}, {}),
    ({"tracing.endpoint": "[::1:4317"}, {}, 'tracing.endpoint: is "[::1:4317", which is no endpoint',
     {"tracing.endpoint": "[::1]:4317"}, {}),
    ({"tracing.endpoint": "a b"}, {}, 'tracing.endpoint: is "a b", which is no endpoint',
     {"tracing.endpoint": "unix:///run/otel.sock"}, {}),
    ({"tracing.endpoint": "unix//x"}, {}, 'tracing.endpoint: is "unix//x", which is no endpoint',
     {"tracing.endpoint": "unix-abstract://otel"}, {}),
]  # fmt: skip


def test_a_rule_refuses_the_bad_value_and_leaves_its_neighbour(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(named(case)):
            holds(case)


ALLOW = "preloadedImagesVerificationAllowlist"


def test_images_of_the_allowlist(subtests: pytest.Subtests) -> None:
    for pattern, why in [
        ("busybox", ""),
        ("registry.example:5000/team/app", ""),
        ("[fd00::1]:5000/app", ""),
        ("registry.example/team/*", ""),
        (" busybox", "has spaces around it"),
        ("busybox\t", "has spaces around it"),
        ("", "is not the name of an image, without tag and digest"),
        ("busybox:1", "is not the name of an image, without tag and digest"),
        ("a@sha256:" + "0" * 64, "is not the name of an image, without tag and digest"),
        ("Busybox", "is not the name of an image, without tag and digest"),
        ("/*", "has nothing before the /*"),
        ("a/*/b", "has a * that is not at the end, after a /"),
        ("a*", "has a * that is not at the end, after a /"),
        ("*/*", "has a * that is not at the end"),
    ]:
        with subtests.test(pattern):
            lines = found({"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", ALLOW: [pattern]})
            line = f'{ALLOW}[0]: "{pattern}" {why}'.replace("\t", "\\t")
            assert [found.partition(" (")[0] for found in lines] == ([line] if why else [])


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("0.0.0.0", "::1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "::1", True),
        ("x", "::1", False),
    ],
)
def test_two_listeners_share_a_port_only_on_different_addresses(first: str, second: str, clash: bool) -> None:
    findings = Findings()
    check_listeners([("port", first, 1), ("healthzPort", second, 1)], {"port": 1}, findings)
    wanted = ["port: is 1, which is the port of healthzPort too (choose another port)"] if clash else []
    assert findings.lines == wanted
    check_listeners([("port", first, 0), ("healthzPort", second, 0)], {}, findings)
    assert findings.lines == wanted


OPEN = {"authentication.anonymous.enabled": True, "authorization.mode": "AlwaysAllow"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize(("refuse", "severity"), [(False, DANGER), (True, ERROR)])
def test_access_for_every_host_is_reported_and_refused_where_the_unit_asks_for_that(
    address: str, refuse: bool, severity: str
) -> None:
    findings = Findings()
    check_open_access(effective({**OPEN, "address": address, "port": 7}), refuse, findings)
    (finding,) = findings.found
    assert (finding.severity, finding.key) == (severity, "authentication.anonymous.enabled")
    assert f"address is {address}: every host that reaches port 7 may run commands" in finding.message


@pytest.mark.parametrize(
    "closed",
    [
        {"address": "127.0.0.1"},
        {"address": "::1"},
        {"enableServer": False},
        {"authentication.anonymous.enabled": False},
        {"authorization.mode": "Webhook"},
    ],
)
def test_one_restriction_is_enough(closed: dict[str, object]) -> None:
    findings = Findings()
    check_open_access(effective({**OPEN, **closed}), True, findings)
    assert findings.found == []
