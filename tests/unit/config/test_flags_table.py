"""Every flag there is, from the one table: a good value lands where it belongs, a bad one gives the known message."""

from typing import Any

import pytest

from shared.config.field_table import FIELDS
from shared.config.fields import FlagKind
from shared.config.flag_lines import flag_lines
from shared.config.flag_table import FLAGS, REMOVED_FLAGS, WINDOWS_FLAGS, Flag
from shared.config.flag_text import value_text
from shared.config.flag_values import parse_value
from shared.config.flags import Flags, FlagsRefusedError, parse_flags
from shared.config.help_text import help_text

GOOD: dict[FlagKind, tuple[str, Any, str]] = {  # text, value, and how a FLAG line shows it
    FlagKind.BOOL: ("T", True, "true"),
    FlagKind.INT32: ("0x1f", 31, "31"),
    FlagKind.INT: ("1_000", 1000, "1000"),
    FlagKind.FLOAT64: ("0.5", 0.5, "0.5"),
    FlagKind.STRING: ("a b,c", "a b,c", "a b,c"),
    FlagKind.DURATION: ("90.5s", "1m30.5s", "1m30.5s"),
    FlagKind.STRINGS: ('a,"b,c"', ["a", "b,c"], '[a,"b,c"]'),
    FlagKind.MAP: ("z=1, a = b=c,", {"z": "1", "a": "b=c"}, "a=b=c,z=1"),
    FlagKind.LABELS: ("b=1,a", {"b": "1", "a": ""}, "a=,b=1"),
    FlagKind.THRESHOLDS: ("b<5%,a<1Gi", {"b": "5%", "a": "1Gi"}, "a<1Gi,b<5%"),
    FlagKind.PAIR: ("a=b,c=d", {"a": "b,c=d"}, "a=b,c=d"),
    FlagKind.GATES: ("B=true,A=0", {"B": True, "A": False}, "A=false,B=true"),
    FlagKind.IP: ("010.0.00.01", "10.0.0.1", "10.0.0.1"),
    FlagKind.QUANTITY: ("2048Ki", "2Mi", "2Mi"),
    FlagKind.LEVEL: ("4", 4, "4"),
    FlagKind.VMODULE: (
        "a*=1,b=2,",
        [{"filePattern": "a*", "verbosity": 1}, {"filePattern": "b", "verbosity": 2}],
        "a*=1,b=2",
    ),
    FlagKind.RESERVED_MEMORY: (
        "0:memory=1024Mi,hugepages-2Mi=64Mi;1:memory=2G",
        [
            {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "64Mi"}},
            {"numaNode": 1, "limits": {"memory": "2G"}},
        ],
        "0:hugepages-2Mi=64Mi,memory=1Gi;1:memory=2G",
    ),
    FlagKind.TAINTS: (
        "a/b=c:NoSchedule,d:NoExecute,e-,f:PreferNoSchedule-",
        [{"key": "a/b", "value": "c", "effect": "NoSchedule"}, {"key": "d", "effect": "NoExecute"}],
        "a/b=c:NoSchedule,d:NoExecute",
    ),
    FlagKind.MULTIMAP: ("b:2,a: x:y,b:1", {"b": ["2", "1"], "a": ["x:y"]}, "a:x:y,b:1,b:2"),
}  # fmt: skip

INT = "strconv.ParseInt: parsing "
BAD: dict[FlagKind, dict[str, str]] = {
    FlagKind.BOOL: {"yes": 'strconv.ParseBool: parsing "yes": invalid syntax', "": "ParseBool"},
    FlagKind.INT32: {
        "x": f'{INT}"x": invalid syntax', "": "invalid syntax", "1_": "invalid syntax", "08": "invalid syntax",
        "1__0": "invalid syntax", "2147483648": f'{INT}"2147483648": value out of range',
        "9" * 500: "value out of range", "-0x80000001": "value out of range", "1.5": "invalid", "١": "invalid syntax",
    },
    FlagKind.INT: {"9223372036854775808": "value out of range", "1e3": "invalid syntax", " 1": "invalid syntax"},
    FlagKind.FLOAT64: {"x": 'strconv.ParseFloat: parsing "x": invalid syntax'},
    FlagKind.STRING: {},
    FlagKind.DURATION: {
        "5": 'time: missing unit in duration "5"', "5x": 'time: unknown unit "x" in duration "5x"',
        "": 'time: invalid duration ""', "x": 'time: invalid duration "x"', "1.2.3s": "time: invalid duration",
        "99999999h": "time: invalid duration", "1" * 500 + "s": "time: invalid duration",
        ".s": "time: invalid duration",
    },
    FlagKind.STRINGS: {
        'a"b': 'parse error on line 1, column 2: bare " in non-quoted field',
        '"a': 'extraneous or missing " in quoted-field', "\n": "EOF",
        '"a"b': 'parse error on line 1, column 3: extraneous or missing " in quoted-field',
    },
    FlagKind.MAP: {"a": "malformed pair, expect string=string", "a=b, ": "malformed pair"},
    FlagKind.LABELS: {},
    FlagKind.THRESHOLDS: {"a=b": "malformed pair, expect string<string"},
    FlagKind.PAIR: {"": "malformed pair, expect string=string"},
    FlagKind.GATES: {
        "A": "malformed pair, expect string=bool",
        "A=on": 'invalid value of A: on, err: strconv.ParseBool: parsing "on"',
    },
    FlagKind.IP: {
        "x": '"x" is not a valid IP address', "1.2.3": "valid IP", "1.2.3.256": "valid IP", "fe80::1%eth0": "valid IP",
        "1" * 9999: "valid IP",
    },
    FlagKind.QUANTITY: {"x": "quantities must match the regular expression", " 1": "quantities", "": "quantities"},
    FlagKind.LEVEL: {
        "-1": 'strconv.ParseUint: parsing "-1": invalid syntax', "0x1": "invalid syntax", "2147483648": "out of range",
    },
    FlagKind.VMODULE: {
        "a": '"a" does not have the pattern=N format', "=1": "pattern=N", "a=1=2": "pattern=N",
        "a=x": 'parsing verbosity in "a=x": strconv.ParseUint',
    },
    FlagKind.RESERVED_MEMORY: {
        "memory=1Gi": "numaNode:type=quantity", "0:memory": "type=quantity", "0:cpu=1": 'unknown type of memory "cpu"',
        "0:memory=x": "quantities must match", "x:memory=1Gi": f'{INT}"x"', "0:memory=1Gi;": "numaNode",
    },
    FlagKind.TAINTS: {
        "a=b": "invalid taint spec: a=b", "a:No": "invalid taint effect: No, unsupported taint effect",
        "a:NoSchedule,a=1:NoSchedule": "duplicated taints with the same key and effect: a=1:NoSchedule",
        "a b:NoSchedule": "invalid taint spec: a b:NoSchedule, name part", "a=é:NoSchedule": "a valid label must be",
        "a:NoSchedule,": "invalid taint spec: ", "a=b=c:NoSchedule": "invalid taint spec",
        "a:b:NoSchedule": "invalid taint spec", "é-": "invalid taint spec",
    },
    FlagKind.MULTIMAP: {"Authorization": "malformed pair, expect string:string"},
}  # fmt: skip
VALUED = [flag for flag in FLAGS.values() if flag.name not in ("help", "version")]


def good(flag: Flag) -> tuple[str, Any, str]:
    return (flag.choices[0],) * 3 if flag.choices else GOOD[flag.kind]


def refusal(*arguments: str) -> str:
    with pytest.raises(FlagsRefusedError) as caught:
        parse_flags(list(arguments))
    [line] = caught.value.lines
    assert line.endswith(")") and "\n" not in line
    return line


def test_a_good_value_lands_where_it_belongs_in_every_way_of_writing_it(subtests: pytest.Subtests) -> None:
    for flag in VALUED:
        with subtests.test(flag.name):
            text, value, shown = good(flag)
            parsed = parse_flags([f"--{flag.name}={text}"])
            if flag.key:
                assert (parsed.fields, parsed.places, parsed.own) == (
                    {flag.key: value},
                    {flag.key: f"--{flag.name}"},
                    {},
                )
            else:
                assert parsed.own == {flag.name: value}
                assert parsed.without_effect == (() if flag.acts else (f"--{flag.name}",))
            assert parsed.deprecations == (
                (f"Flag --{flag.name} has been deprecated, {flag.deprecated}",) if flag.deprecated else ()
            )
            assert parse_flags([f"--{flag.name.replace('-', '_')}={text}"]) == parsed
            if flag.kind is FlagKind.BOOL:
                assert parse_flags([f"--{flag.name}"]) == parsed
            else:
                assert parse_flags([f"--{flag.name}", text]) == parsed
            shown = "<masked>" if flag.secret else shown.replace('"', r"\"")
            assert f'FLAG: --{flag.name}="{shown}"' in flag_lines(parsed)


def test_a_bad_value_gives_the_message_that_is_known(subtests: pytest.Subtests) -> None:
    for flag in VALUED:
        with subtests.test(flag.name):
            for text, message in BAD[flag.kind].items():
                line = refusal(f"--{flag.name}={text}")
                assert message in line and len(line) < 1000
                assert f' for "{f"-{flag.shorthand}, " if flag.shorthand else ""}--{flag.name}" flag: ' in line
                assert ("<masked>" in line) is flag.secret


@pytest.mark.long
def test_a_default_is_a_value_of_the_flag(subtests: pytest.Subtests) -> None:
    for flag in VALUED:
        with subtests.test(flag.name):
            text = value_text(flag.kind, flag.default)
            if flag.kind is FlagKind.STRINGS:
                text = text.strip("[]")
            if flag.kind in (FlagKind.IP, FlagKind.PAIR, FlagKind.RESERVED_MEMORY) and not text:
                assert not flag.default
            else:
                assert parse_value(flag.kind, text, None) == flag.default


def test_the_help_shows_every_flag_in_the_layout_of_go() -> None:
    head, _, rest = help_text().partition("\nUsage:\n  kubelet [flags]\n\nFlags:\n")
    assert head and head.endswith(".\n")
    lines = rest.rstrip("\n").replace("\n" + 16 * " ", " ").split("\n")
    assert [line.split("--", 1)[1].split(" ")[0] for line in lines] == sorted(FLAGS)
    column = lines[0].index(FLAGS["address"].doc)
    assert column == max(len(line[:column].rstrip()) for line in lines) + 3
    for line, flag in zip(lines, FLAGS.values(), strict=True):
        assert line[column - 3 : column] == "   " and line[column:].startswith(flag.doc)
        assert line.startswith(f"  -{flag.shorthand}, --" if flag.shorthand else "      --")
        assert ("DEPRECATED" in line) is bool(flag.deprecated)
        assert line.endswith(f" (DEPRECATED: {flag.deprecated})") is bool(flag.deprecated)


def test_the_help_gives_type_default_and_deprecation(subtests: pytest.Subtests) -> None:
    for line in [
        "      --anonymous-auth   (default true) (DEPRECATED: ",
        "      --authentication-token-webhook   (DEPRECATED: ",
        '      --authorization-mode string   (default "AlwaysAllow") (DEPRECATED: ',
        "      --enforce-node-allocatable strings   (default [pods]) (DEPRECATED: ",
        "      --eviction-hard mapStringString   (DEPRECATED: ",
        "      --manifest-url-header colonSeparatedMultimapStringString   (DEPRECATED: ",
        "      --maximum-dead-containers int32   (default -1) (DEPRECATED: ",
        "      --read-only-port int32   (default 10255) (DEPRECATED: ",
        "      --register-with-taints []v1.Taint   (DEPRECATED: ",
        "  -h, --help   ",
        "  -v, --v Level   ",
        "      --version version[=true]   ",
        "      --vmodule pattern=N,...   ",
        "      --volume-stats-agg-period duration   (default 1m0s) (DEPRECATED: ",
    ]:
        with subtests.test(line):
            head, tail = line.rsplit("   ", 1)
            [found] = [shown for shown in help_text().splitlines() if shown.startswith(head + "  ")]
            assert tail in found and ("(default" in tail) is ("(default" in found)


def test_the_help_lists_the_gates_that_are_no_part_of_a_release_yet() -> None:
    lines = help_text().splitlines()
    assert 16 * " " + "AllAlpha=true|false (ALPHA - default=false)" in lines
    assert 16 * " " + "RotateKubeletServerCertificate=true|false (BETA - default=true)" in lines
    assert "RotateKubeletClientCertificate=" not in help_text()


def test_flag_lines_show_every_flag_with_the_defaults_of_flags_alone() -> None:
    lines = flag_lines(Flags())
    assert [line.partition("=")[0] for line in lines] == [f"FLAG: --{name}" for name in sorted(FLAGS)]
    shown = {
        "anonymous-auth": "true", "authorization-mode": "AlwaysAllow", "read-only-port": "10255", "eviction-hard": "",
        "help": "false", "version": "false", "enforce-node-allocatable": "[pods]", "sync-frequency": "1m0s", "v": "0",
    }  # fmt: skip
    assert not [name for name, text in shown.items() if f'FLAG: --{name}="{text}"' not in lines]
    assert 'FLAG: --max-pods="7"' in flag_lines(Flags(), {"maxPods": 7})
    assert 'FLAG: --max-pods="8"' in flag_lines(parse_flags(["--max-pods=8"]), {"maxPods": 7})


def test_a_removed_flag_is_refused_with_what_replaces_it(subtests: pytest.Subtests) -> None:
    for name in REMOVED_FLAGS:
        with subtests.test(name):
            assert name not in FLAGS
            assert refusal(f"--{name}=x").startswith(f"unknown flag: --{name} (removed in 1.")


def test_a_flag_of_windows_is_refused(subtests: pytest.Subtests) -> None:
    for name in WINDOWS_FLAGS:
        with subtests.test(name):
            assert refusal(f"--{name.replace('-', '_')}").endswith("(it exists on Windows only; leave it out)")


def test_a_removed_flag_is_named_in_no_remedy_but_by_a_flag_that_exists() -> None:
    for removed in REMOVED_FLAGS.values():
        named = [word.strip(".,;)").partition("=")[0] for word in removed.remedy.split() if word.startswith("--")]
        assert not [word for word in named if word.removeprefix("--") not in FLAGS], removed


def test_what_kubeadm_wrote_for_older_releases_is_accepted() -> None:
    arguments = "--container-runtime=remote --network-plugin=cni --pod-infra-container-image=registry.k8s.io/pause:3.9"
    flags = parse_flags([*arguments.split(), "--cgroup-driver=systemd"])
    assert flags.without_effect == ("--network-plugin",)
    assert len(flags.deprecations) == 4 and flags.fields == {"cgroupDriver": "systemd"}
    line = refusal("--container-runtime=rkt")
    assert line.startswith('invalid argument "rkt" for "--container-runtime" flag: must be remote or docker')


def test_every_key_has_a_short_description_and_limits_that_its_default_keeps() -> None:
    for field in FIELDS:
        assert 0 < len(field.doc) <= 110 and "`" not in field.doc and not field.doc.endswith("."), field.key
        if field.choices:
            assert field.default in ("", *field.choices), field.key
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert field.low is None or field.low <= field.default, field.key
            assert field.high is None or field.default <= field.high, field.key
    assert not [flag.name for flag in FLAGS.values() if not flag.doc]
