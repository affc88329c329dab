"""supervisord.conf as the executable writes it: the packaged one, moved."""

import configparser
from pathlib import Path

import pytest

from bus.messages.streams import SERVICES
from services.kubelet.configuration import packaged_text, render
from shared.errors import OperatorError

RUN_DIR, LOG_DIR = Path("/run/some"), Path("/var/log/some")


def rendered(python: str = "/opt/venv/bin/python") -> configparser.RawConfigParser:
    conf = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    conf.read_string(render(packaged_text(), RUN_DIR, LOG_DIR, python))
    return conf


def test_nothing_of_the_checkout_and_of_the_system_wide_places_is_left() -> None:
    text = render(packaged_text(), RUN_DIR, LOG_DIR)
    assert "%(here)s" not in text
    assert "/run/bulkhead" not in text and "/var/log/bulkhead" not in text


def test_every_service_is_run_by_the_python_that_runs_the_executable_and_where_it_was_started() -> None:
    conf = rendered()
    for service in SERVICES:
        section = f"program:{service}"
        assert conf.get(section, "command") == f"/opt/venv/bin/python -P -m services.{service}"
        assert not conf.has_option(section, "directory")
    assert not conf.has_option("supervisord", "directory")
    assert not conf.has_option("supervisord", "user")


def test_supervisorctl_finds_it() -> None:
    conf = rendered()
    assert conf.get("unix_http_server", "file") == "/run/some/supervisord.sock"
    assert conf.get("supervisorctl", "serverurl") == "unix:///run/some/supervisord.sock"


def test_a_python_in_a_strange_place_is_quoted_for_supervisord() -> None:
    assert rendered("/a b/100%/python").get("program:pleg", "command").startswith("'/a b/100%%/python' -P ")


@pytest.mark.parametrize("name", ["with space", "semi;colon", "hash#", 'quo"te', "it's", "back\\slash", "line\nbreak"])
def test_a_directory_that_supervisord_cannot_read_is_refused(name: str) -> None:
    with pytest.raises(OperatorError, match=r"run directory .*choose a path"):
        render(packaged_text(), Path("/run") / name, LOG_DIR)


def test_a_service_manager_is_hidden_from_containerd_only() -> None:
    conf = rendered()
    assert 'NOTIFY_SOCKET=""' in conf.get("program:containerd", "environment")
    assert not any(conf.has_option(f"program:{service}", "environment") for service in SERVICES)


@pytest.mark.parametrize("program", [*SERVICES, "containerd", "dockershim"])
def test_supervisord_gives_up_on_none_of_them(program: str) -> None:
    conf, section = rendered(), f"program:{program}"
    assert conf.getint(section, "startsecs") == 0, "no end is too soon"
    assert conf.getint(section, "startretries") >= 1_000_000, "nor is a time when nothing can be forked too long"
    restarted = conf.get(section, "autorestart"), conf.get(section, "exitcodes", fallback="")
    assert restarted == (("unexpected", "0") if program in ("containerd", "dockershim") else ("true", ""))
