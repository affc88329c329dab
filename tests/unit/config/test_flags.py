"""The grammar of the command line is Go's, with its messages; whatever comes, it is one line and never a traceback."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.flag_lines import flag_lines
from shared.config.flag_table import FLAGS
from shared.config.flags import Flags, FlagsRefusedError, parse_flags
from shared.config.help_text import version_text
from shared.version import release_tag
from tests.unit.examples import examples


def refused(*arguments: str) -> FlagsRefusedError:
    with pytest.raises(FlagsRefusedError) as caught:
        parse_flags(list(arguments))
    assert len(caught.value.lines) == 1
    return caught.value


@pytest.mark.parametrize("form", [["-v", "3"], ["-v3"], ["-v=3"], ["--v=3"], ["--v", "3"], ["-hv3"], ["-v=1", "-v3"]])
def test_verbosity_has_many_forms(form: list[str]) -> None:
    assert parse_flags(form).fields == {"logging.verbosity": 3}


@pytest.mark.parametrize(
    ("arguments", "asks", "version"),
    [
        ([], False, ""),
        (["-h"], True, ""),
        (["--help"], True, ""),
        (["--help=false"], False, ""),
        (["-h=0"], False, ""),
        (["--version"], False, "true"),
        (["--version=T"], False, "true"),
        (["--version=raw"], False, "raw"),
        (["--version=false"], False, ""),
        ([f"--version={release_tag('1.36')}-eks.1+x"], False, f"{release_tag('1.36')}-eks.1+x"),
    ],
)
def test_help_and_version_are_asked_for(arguments: list[str], asks: bool, version: str) -> None:
    flags = parse_flags(arguments)
    assert (flags.asks_help, flags.version, flags.own) == (asks, version, {})
    shown = flag_lines(flags)
    assert f'FLAG: --help="{str(asks).lower()}"' in shown and f'FLAG: --version="{version or "false"}"' in shown


def test_a_bad_command_line_is_one_line_with_a_remedy(subtests: pytest.Subtests) -> None:
    for arguments, line in [
        (["--prot=1"], "unknown flag: --prot (did you mean --port?)"),
        (["--Port=1"], "unknown flag: --Port (did you mean --port?)"),
        (["--zzzzzz"], "unknown flag: --zzzzzz (`bulkhead config flags` lists those that exist)"),
        (["--a\nb\x1b"], r"unknown flag: --a\nb\x1b (`bulkhead config flags` lists those that exist)"),
        (["-config", "x"], "unknown shorthand flag: 'c' in -config (did you mean --config?)"),
        (["-hx"], "unknown shorthand flag: 'x' in -x (the only ones are -h and -v)"),
        (["-'"], r"unknown shorthand flag: '\'' in -' (the only ones are -h and -v)"),
        (["---v"], "bad flag syntax: ---v (write --name=value)"),
        (["--=v"], "bad flag syntax: --=v (write --name=value)"),
        (["--config"], "flag needs an argument: --config (give it as --config=value)"),
        (["--max_pods"], "flag needs an argument: --max_pods (give it as --max-pods=value)"),
        (["-v"], "flag needs an argument: 'v' in -v (such as -v=2)"),
        (["-v="], 'invalid argument "=" for "-v, --v" flag: strconv.ParseUint: parsing "=": invalid syntax ('),
        (["--port=x"], 'invalid argument "x" for "--port" flag: strconv.ParseInt: parsing "x": invalid syntax ('),
        (["--help=x"], 'invalid argument "x" for "-h, --help" flag: strconv.ParseBool: parsing "x": invalid syntax ('),
        (["--version=x"], 'invalid argument "x" for "--version" flag: strconv.ParseBool: parsing "x": invalid'),
        (["--version=v1"], 'invalid argument "v1" for "--version" flag: "v1" is not a version such as v1.'),
        (["--version=v1.2.3"], 'invalid argument "v1.2.3" for "--version" flag: "v1.2.3" is another release than the'),
        (["--port=x", "--nonsense"], 'invalid argument "x" for "--port"'),
        (["start", "--help"], 'unknown command "start" (flags begin with --)'),
        (["--help", "help"], 'unknown command "help"'),
        (["--version", "raw"], 'unknown command "raw" (--version takes its value after =, as in --version=raw)'),
        (["--anonymous-auth", "false"], 'unknown command "false" (--anonymous-auth takes its value after =, as'),
        (["--", "--port=1"], 'unknown command "--port=1" (flags begin with --)'),
        ([""], 'unknown command "" (flags begin with --)'),
        (["-"], 'unknown command "-" (flags begin with --)'),
        (["a", "b"], 'unknown command "a"'),
        (["a", "--nonsense"], "unknown flag: --nonsense"),
        (["--config", "/a\0b"], "flags: argument 2 holds a NUL byte (remove it)"),
        (["--config=/\udcff"], "flags: argument 1 holds what is no UTF-8 (remove it)"),
    ]:
        with subtests.test(f"{arguments!r:.80}"):
            [found] = refused(*arguments).lines
            assert found.startswith(line) and found.endswith(")")


@pytest.mark.parametrize("arguments", [["--config", "--port"], ["--config", "--", "--port=1"], ["--config=a=b"]])
def test_a_flag_takes_the_next_word_whatever_it_is(arguments: list[str]) -> None:
    assert parse_flags(arguments).own["config"] in ("--port", "--", "a=b")


def test_two_dashes_end_the_flags() -> None:
    assert parse_flags(["--port=1", "--"]).fields == {"port": 1}


def test_a_repeated_flag_appends_merges_or_replaces(subtests: pytest.Subtests) -> None:
    for arguments, fields in [
        (["--max-pods=1", "--max_pods=2"], {"maxPods": 2}),
        (["--cluster-dns=1", "--cluster-dns", "2,3"], {"clusterDNS": ["1", "2", "3"]}),
        (["--cluster-dns="], {"clusterDNS": []}),
        (["--eviction-hard=a<1", "--eviction-hard=b<2,a<3"], {"evictionHard": {"a": "3", "b": "2"}}),
        (["--eviction-hard="], {"evictionHard": {}}),
        (["--feature-gates=A=true", "--feature-gates=B=false"], {"featureGates": {"A": True, "B": False}}),
        (
            ["--cpu-manager-policy-options=a=1,b", "--cpu-manager-policy-options=c=2"],
            {"cpuManagerPolicyOptions": {"a": "1,b", "c": "2"}},
        ),
        (["--manifest-url-header=a:1", "--manifest-url-header=a:2"], {"staticPodURLHeader": {"a": ["1", "2"]}}),
        (["--address=1.2.3.4", "--address="], {"address": "1.2.3.4"}),
        (["--healthz-bind-address="], {}),
        (["--address=::FFFF:010.0.0.1"], {"address": "::ffff:a00:1"}),
        (
            ["--reserved-memory=0:memory=1Gi", "--reserved-memory=", "--reserved-memory=1:memory=1Gi"],
            {"reservedMemory": [{"numaNode": node, "limits": {"memory": "1Gi"}} for node in (0, 1)]},
        ),
        (
            ["--register-with-taints=a:NoSchedule", "--register-with-taints=b:NoExecute"],
            {"registerWithTaints": [{"key": "b", "effect": "NoExecute"}]},
        ),
        (["--register-with-taints=a:NoSchedule", "--register-with-taints="], {"registerWithTaints": []}),
        (
            ["--vmodule=a=1", "--vmodule=b=2,c=3"],
            {"logging.vmodule": [{"filePattern": name, "verbosity": n} for n, name in enumerate("abc", start=1)]},
        ),
        (["--max-pods=010", "--pods-per-core=0b11", "--port=+0o17"], {"maxPods": 8, "podsPerCore": 3, "port": 15}),
        (["--oom-score-adj=-0x_a"], {"oomScoreAdj": -10}),
        (["--sync-frequency=-1h0.5s"], {"syncFrequency": "-1h0m0.5s"}),
        (['--tls-cipher-suites="a ""b""",c\nd'], {"tlsCipherSuites": ['a "b"', "c"]}),
    ]:
        with subtests.test(f"{arguments!r:.80}"):
            assert parse_flags(arguments).fields == fields


def test_labels_of_the_node_accumulate() -> None:
    assert parse_flags(["--node-labels=a=1,b", "--node-labels= c = 2"]).own == {
        "node-labels": {"a": "1", "b": "", "c": "2"}
    }


def test_the_flag_seccomp_default_switches_on_and_never_off() -> None:
    assert parse_flags(["--seccomp-default"]).fields == {"seccompDefault": True}
    assert parse_flags(["--seccomp-default=false"]) == Flags(own={"seccomp-default": False})


def test_deprecations_come_in_the_order_given_once_each_and_before_an_error() -> None:
    arguments = ["--sync_frequency=1s", "--config=x", "--max-pods=1", "--sync-frequency=2s"]
    names = [line.split(" has been deprecated, ")[0] for line in parse_flags(arguments).deprecations]
    assert names == ["Flag --sync-frequency", "Flag --max-pods"]
    assert refused(*arguments, "--nonsense", "--port=1").deprecations == parse_flags(arguments).deprecations


def test_a_secret_shows_nowhere() -> None:
    lines = flag_lines(parse_flags(["--storage-driver-password=hunter2", "--manifest-url-header=A:hunter2"]))
    assert not [line for line in lines if "hunter2" in line]
    assert "hunter2" not in refused("--manifest-url-header=hunter2").lines[0]


def test_the_version_is_the_release_whose_behaviour_is_kept() -> None:
    assert version_text("true", "1.37") == "Kubernetes v1.37.0"
    raw = version_text("raw", "1.36")
    assert raw.startswith('version.Info{Major:"1", Minor:"36", EmulationMajor:"", EmulationMinor:"", MinCompatibility')
    assert 'GitVersion:"v1.36.0", GitCommit:"' in raw and raw.endswith('"}') and "\n" not in raw


@pytest.mark.parametrize("head", ["", "--config=", "--", "-v", "-", "--cluster-dns="])
def test_an_argument_without_end_is_refused_at_once(head: str) -> None:
    for body in ("1", "-", "\0"):
        begun = time.process_time()
        [line] = refused(head + body * 10 * 2**20).lines
        assert len(line) < 1000 and time.process_time() - begun < 1


@pytest.mark.share(5)
@pytest.mark.parametrize("name", sorted({flag.kind: flag.name for flag in FLAGS.values()}.values()))
def test_the_longest_argument_a_program_can_get_is_read_at_once(name: str) -> None:
    for body in ("x", "1", ",", '"', '""', "=", "a=b,", "a:NoSchedule,", "0:", ";", "1h", "0", "."):
        begun = time.process_time()
        try:
            parse_flags([f"--{name}={body * (130_000 // len(body))}"])
        except FlagsRefusedError as error:
            assert len(str(error)) < 2000
        assert time.process_time() - begun < 2


WORDS = st.one_of(
    st.sampled_from([*FLAGS, "v", "h", "nonsense"]),
    st.text(st.characters(codec="utf-8") | st.sampled_from("-=_,:;<\"'\0\udcff0123456789tT"), max_size=12),
)
ARGUMENTS = st.lists(
    st.one_of(
        WORDS,
        st.builds("--{}={}".format, WORDS, WORDS),
        st.builds("--{}".format, WORDS),
        st.builds("-{}".format, WORDS),
    ),
    max_size=6,
)


@pytest.mark.long
@settings(max_examples=examples(250), deadline=None)
@given(ARGUMENTS)
def test_no_command_line_gives_anything_but_flags_or_one_line(arguments: list[str]) -> None:
    try:
        flags = parse_flags(arguments)
    except FlagsRefusedError as error:
        [line] = error.lines
        assert line.isprintable() and line.endswith(")")
        return
    assert len(flag_lines(flags)) == len(FLAGS)
    assert all(line.isprintable() for line in flag_lines(flags))


@pytest.mark.long
@settings(max_examples=examples(250), deadline=None)
@given(
    st.sampled_from(sorted(FLAGS)), st.text(st.sampled_from('abz019.-+=<,:;"\\ \n_%xeGiKmsNoSchedule/*é'), max_size=30)
)
def test_no_value_gives_anything_but_flags_or_one_line(name: str, text: str) -> None:
    test_no_command_line_gives_anything_but_flags_or_one_line.hypothesis.inner_test([f"--{name}={text}"])
