"""A configuration that cannot be is refused, each mistake in one line with its place. What the kubelet only logs is a
remark."""

from pathlib import Path

import pytest

from shared.agent.places import find_arguments, find_places
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError
from shared.config.loader import load_effective
from shared.errors import OperatorError
from tests.unit.config.resolving import ALONE, EMBEDDED, HEAD, file_refusal, refusal, resolve


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ALONE + "port: 99999", ":5:1: port: is 99999, must be from 1 to 65535 (change it or leave it out)"),
        (ALONE + "address: localhost", ':5:1: address: is "localhost", must be an IP address'),
        (ALONE + "cgroupDriver: sytemd", ':5:1: cgroupDriver: is "sytemd", must be one of cgroupfs, systemd'),
        (ALONE + "cpuCFSQuotaPeriod: 2s", ':5:1: cpuCFSQuotaPeriod: is "2s", must be from 0.001s to 1s'),
        (ALONE + "evictionHard: {memory.free: 1Mi}", ":5:16: evictionHard.memory.free: is not an eviction signal"),
        (ALONE + "evictionHard: {memory.available: x}", ':5:16: evictionHard.memory.available: is "x", must be a'),
        (ALONE + "podLogsDir: /a//b", ':5:1: podLogsDir: is "/a//b", must be absolute and without //, . or ..'),
        (ALONE + "tlsCipherSuites: [NOPE]", ':5:1: tlsCipherSuites[0]: "NOPE" is not a cipher suite'),
        (ALONE + "containerRuntimeEndpoint: tcp://1", ':5:1: containerRuntimeEndpoint: is "tcp://1", must be a local'),
        (ALONE + "cgroupRoot: /a/../b", ':5:1: cgroupRoot: is "/a/../b", must be without .. (write'),
        (
            ALONE + f"containerRuntimeEndpoint: unix:///{'d' * 107}",
            ":5:1: containerRuntimeEndpoint: is a path of 108 bytes, sockets have at most 107 (move",
        ),
        (ALONE + "readOnlyPort: 10250", ":5:1: readOnlyPort: is 10250, which is the port of port too (choose another"),
        (ALONE + "port: 10248", ":5:1: port: is 10248, which is the port of healthzPort too (choose another port)"),
        (ALONE + "serializeImagePulls: true\nmaxParallelImagePulls: 2", ":6:1: maxParallelImagePulls: is 2 while"),
        (
            EMBEDDED + "  bridge: a-much-too-long-name",
            ':10:3: embeddedContainerd.bridge: is "a-much-too-long-name", must be a',
        ),
        (
            EMBEDDED + "  defaultRuntime: kata",
            ':10:3: embeddedContainerd.defaultRuntime: is "kata", must be runc or crun',
        ),
        (EMBEDDED + "  podCIDR: 10.0.0.1", ':10:3: embeddedContainerd.podCIDR: is "10.0.0.1", must be an IPv4 network'),
        (
            EMBEDDED + "  registryConfigPath: /a:/b",
            ':10:3: embeddedContainerd.registryConfigPath: is "/a:/b", must be one',
        ),
        (EMBEDDED + "devicePluginWait: 25h", ':10:1: devicePluginWait: is "25h", must be from 0s to 24h (change it)'),
        (
            EMBEDDED + "deviceUnhealthyAction: Restart",
            ':10:1: deviceUnhealthyAction: is "Restart", must be None, RestartContainer, FailPod (choose one of them)',
        ),
        (
            EMBEDDED + "offlinePods: {enabled: true, maxAge: 59s}",
            ':10:30: offlinePods.maxAge: is "59s", must be at least 60s (change it)',
        ),
        (
            EMBEDDED + "offlinePods: {maxBytes: 65535}",
            ":10:15: offlinePods.maxBytes: is 65535, must be from 65536 to 268435456 (change it)",
        ),
        (EMBEDDED + "  rot: x", ':10:3: embeddedContainerd.rot: unknown key (did you mean "root"?)'),
        ("port: 1\n" + HEAD.replace("v1beta1", "v1"), ':2:1: apiVersion: is "kubelet.config.k8s.io/v1" (write'),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    lines = file_refusal(tmp_path, text)
    assert [found[: len(line)] for found in lines if line in found] == [line], lines


def test_zero_keeps_its_meaning_where_small_values_are_refused(tmp_path: Path) -> None:
    config = resolve(
        tmp_path, ALONE + "fileCheckFrequency: 0s\nsyncFrequency: 0s\nruntimeRequestTimeout: '0'\nmaxOpenFiles: 0\n"
    )
    assert (config.file_check_frequency, config.sync_frequency, config.runtime_request_timeout) == (20, 60, 120)
    assert config.max_open_files == 1000000


def test_a_resolv_conf_that_is_not_there_is_a_remark(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(ALONE + "resolvConf: none.conf\n")
    [remark] = evaluate([f"--config={file}"]).remarks
    assert remark.startswith(f"resolvConf: {tmp_path}/none.conf does not exist")


def test_what_the_kubelet_only_logs_is_a_remark_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + "maxPods: 1\nmaxPods: 2\nPort: 5\n---\nkind: Pod\n", encoding="utf-8")
    resolved = evaluate([f"--config={file}"])
    assert (resolved.config.max_pods, resolved.config.port) == (2, 10250)
    assert [remark.removeprefix(str(file)).partition(" (")[0] for remark in resolved.remarks[:3]] == [
        f":6:1: maxPods: is given twice, first at {file}:5:1; the last one counts",
        ":9:1: is a further document, which is ignored",
        ":7:1: Port: unknown key, ignored",
    ]


def test_a_refusal_shows_the_ignored_keys_too_for_they_may_be_why(tmp_path: Path) -> None:
    lines = file_refusal(tmp_path, HEAD + "authetication: {}\nauthorization: {mode: AlwaysAllow}\n")
    assert lines[0] == ':3:1: authetication: unknown key, ignored (did you mean "authentication"?)'
    assert lines[1].startswith(": authentication.webhook.enabled: is true, which needs an API server")


def test_after_a_mistake_what_may_follow_from_it_is_left_out(tmp_path: Path) -> None:
    lines = file_refusal(tmp_path, ALONE.replace("AlwaysAllow", "5") + "port: 99999\n")
    assert [line.split(": ")[1] for line in lines] == ["authorization.mode", "port"]


@pytest.mark.parametrize(
    ("text", "flags", "exit_code"),
    [
        ("featureGates: {Nonsense: true}", [], 2),
        ("featureGates: {GracefulNodeShutdown: false}", [], 2),
        ("", ["--feature-gates=Nonsense=true"], 1),
        ("port: 99999", [], 1),
        ("port: x\nfeatureGates: {Nonsense: true}", [], 1),
    ],
)
def test_bad_gates_in_a_file_end_with_their_own_code(
    tmp_path: Path, text: str, flags: list[str], exit_code: int
) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + text, encoding="utf-8")
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config={file}", *flags])
    assert refused.value.exit_code == exit_code
    drop_in = tmp_path / "d" / "1.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config-dir={drop_in.parent}", *flags])
    assert refused.value.exit_code == exit_code


def test_kind_and_version_are_mandatory(tmp_path: Path) -> None:
    assert [line.partition(" (")[0] for line in file_refusal(tmp_path, "port: 1")] == [
        ":1:1: apiVersion: is missing",
        ":1:1: kind: is missing",
    ]


def test_standalone_without_its_settings_names_both_keys_to_change(tmp_path: Path) -> None:
    assert file_refusal(tmp_path, HEAD) == [
        ": authentication.webhook.enabled: is true, which needs an API server (set it to false)",
        ": authorization.mode: is Webhook, which needs an API server (set it to AlwaysAllow)",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--config", "/a\0b"], "flags: argument 2 holds a NUL byte (remove it)"),
        (["--cloud-provider=aws"], '--cloud-provider: is "aws", must be empty or external (leave it out)'),
        (["--root-dir=/a/"], '--root-dir: is "/a/", must be a path in its shortest form (no //, ., .. or final /)'),
        (["--hostname-override=a b"], '--hostname-override: node name "a b" cannot be used (give another)'),
        (
            ["--output=yaml"],
            'invalid argument "yaml" for "--output" flag: must be text or json (leave it out for text)',
        ),
        (["--config=/does/not/exist"], "--config: /does/not/exist cannot be read: No such file or"),
        (["--run-dir=/x"], "--run-dir: is /x, but the services look in /run/bulkhead (set BULKHEAD_RUN_DIR=/x for"),
    ],
)
def test_a_bad_flag_is_one_line(arguments: list[str], line: str) -> None:
    [found] = refusal(*arguments)
    assert found.startswith(line)


def test_what_has_no_effect_yet_is_named(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + "hairpinMode: none\nmemorySwap: {swapBehavior: NoSwap}\nvolumeStatsAggPeriod: 0s\n")
    resolved = evaluate([f"--config={file}", "--kernel-memcg-notification=false", "--container-hints=/x"])
    assert resolved.without_effect == (
        "hairpinMode", "--kernel-memcg-notification", "--container-hints",
    )  # fmt: skip


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "config": {}, "generation": ""}']
)
def test_an_unusable_config_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(OperatorError, match="restart bootstrap"):
        load_effective(str(tmp_path))


def test_an_open_quote_in_the_args_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubelet.args").write_text("--port=1\n--config='a\n", encoding="utf-8")
    with pytest.raises(OperatorError, match=r"kubelet\.args:2: .*close the quote"):
        find_arguments(find_places({"BULKHEAD_HOME": str(tmp_path)}), {})
