"""Words and variables of a unit are expanded as systemd does, which `tests/process/test_systemd_units.py` compares."""

import pytest

from services.cli.systemd.expansion import expand_words, referenced_names, split_words, variables_of

VARIABLES = {"ALL": "--a --b='c d'", "LEVEL": "2", "SPACES": " two  words ", "EMPTY": "", "Q": "it's"}


def test_a_word_is_expanded(subtests: pytest.Subtests) -> None:
    for word, words in [
        ("--v=2", ["--v=2"]),
        ("--v", ["--v"]),
        ("--node-labels=a=b c", ["--node-labels=a=b c"]),
        ('--x="y"', ['--x="y"']),
        ("it's", ["it's"]),
        ("", [""]),
        ("$ALL", ["--a", "--b=c d"]),
        ("$SPACES", ["two", "words"]),
        ("$EMPTY", []),
        ("$UNSET", []),
        ("$LEVEL.x", []),  # no name of a variable
        ("$", []),
        ("${SPACES}", [" two  words "]),
        ("${UNSET}", [""]),
        ("--v=${LEVEL}", ["--v=2"]),
        ("--v=${LEVEL}${LEVEL}", ["--v=22"]),
        ("--v=$LEVEL", ["--v=$LEVEL"]),  # only as a separate word, or with braces
        ("${Q}", ["it's"]),
        ("$$", ["$"]),
        ("$$LEVEL", ["$LEVEL"]),
        ("--v=$${LEVEL}", ["--v=${LEVEL}"]),
        ("${LEVEL", ["${LEVEL"]),
        ("100%", ["100%"]),
    ]:
        with subtests.test(word):
            assert expand_words([word], VARIABLES) == words


def test_the_words_of_kubeadms_drop_in_become_flags() -> None:
    files = [
        '# made by kubeadm\nKUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --pod-infra-container-image=pause:3.10"\n',
        "KUBELET_EXTRA_ARGS=--v 2\n",
    ]
    variables = variables_of(["KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"], files)
    words = ["$KUBELET_KUBECONFIG_ARGS", "$KUBELET_CONFIG_ARGS", "$KUBELET_KUBEADM_ARGS", "$KUBELET_EXTRA_ARGS"]
    assert expand_words(words, variables) == [
        "--config=/var/lib/kubelet/config.yaml",
        "--node-ip=192.0.2.1",
        "--pod-infra-container-image=pause:3.10",
        "--v",
        "2",
    ]
    assert list(referenced_names([*words, "--v=${LEVEL}", "$$NOT", "--x=$NOT"])) == [
        *(word[1:] for word in words),
        "LEVEL",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--a=1 --b", ["--a=1", "--b"]),
        (" \t--a\n--b\r", ["--a", "--b"]),
        ("--a='b c' \"--d=e f\"", ["--a=b c", "--d=e f"]),
        ("--a='b \"c\"'", ['--a=b "c"']),
        (r"--a=b\ c --d=\"e\"", ["--a=b c", '--d="e"']),
        (r"'it\'s'", ["it's"]),
        ("--a='open quote", ["--a=open quote"]),
        ("'' \"\"", ["", ""]),
        ("a\\", ["a"]),
        ("# no comment", ["#", "no", "comment"]),
        ("", []),
    ],
)
def test_the_value_of_a_variable_is_split(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_an_environment_file_is_read(subtests: pytest.Subtests) -> None:
    for text, variables in [
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("A=1\nA=2", {"A": "2"}),
        ("# A=1\n;B=2\n\n  C = 3 \t\n", {"C": "3"}),
        ("A='b  c' \nB=\"d 'e'\"\n", {"A": "b  c", "B": "d 'e'"}),
        ("A=b'c'd\n", {"A": "b'c'd"}),  # quotes count at the beginning
        ("A='b'\"c\" d\n", {"A": "bcd"}),
        ("A='one\ntwo'\nB=3\n", {"A": "one\ntwo", "B": "3"}),
        ("A=one\\\ntwo\nB=3", {"A": "onetwo", "B": "3"}),
        ('A="one\\\ntwo"', {"A": "onetwo"}),
        (r'A="a\"b\$c\d"', {"A": 'a"b$c\\d'}),
        (r"A=a\"b\ c\ " + "  \n", {"A": 'a"b c '}),
        ("A='open quote\nB=2\n", {"A": "open quote\nB=2\n"}),
        ('A="open quote\\', {"A": "open quote"}),
        ("A=\nB=\n", {"A": "", "B": ""}),
        ("A\nB=2\n", {"B": "2"}),
        ("export A=1\n2B=1\nC-D=1\n=x\n", {}),
        ("A=b=c\n", {"A": "b=c"}),
        ("A=b # no comment\n", {"A": "b # no comment"}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=\\", {"A": ""}),
    ]:
        with subtests.test(text):
            assert variables_of([], [text]) == variables


def test_later_files_win_over_earlier_ones_and_over_the_unit_and_what_is_unset_is_gone() -> None:
    variables = variables_of(
        ["A=unit", "B=unit", "C=unit=x"], ["A=first\nD=1\n", "A=second\n"], ["D", "B=other", "C=unit=x"]
    )
    assert variables == {"A": "second", "B": "unit"}


@pytest.mark.long
def test_a_large_file_is_read_in_time() -> None:
    for text in ("A='" + "x\n" * 400_000, 'A="' + "\\\n" * 400_000, "A=" + "\\ " * 400_000, "A=" + "'' " * 300_000):
        assert list(variables_of([], [text])) == ["A"]
    assert variables_of([], ["A" * 1_000_000, "=" * 1_000_000, "#" * 1_000_000, "\n" * 1_000_000]) == {}
    assert variables_of([], ["\n" * 500_000 + "A=b" + " \n" * 250_000]) == {"A": "b"}
