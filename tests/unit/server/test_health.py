"""The verdict of /healthz and its text."""

import pytest

from services.server.core.pages.health import Check, Health, answer_all, answer_one

SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"


def errors(health: Health, now: float) -> dict[str, str]:
    return {check.name: check.error for check in health.checks(now) if check.error}


@pytest.fixture
def health() -> Health:
    return Health(("podsync", "volume"), sync_frequency=60.0, device_socket=SOCKET, now=1000.0)


def test_checks_stand_in_the_kubelets_order_with_one_per_service_after(health: Health) -> None:
    assert health.names == ("ping", "log", "syncloop", "device-plugin", "bulkhead-podsync", "bulkhead-volume")
    assert [check.name for check in health.checks(1000.0)] == list(health.names)


def test_a_service_has_thirty_seconds_for_a_beat_after_our_start(health: Health) -> None:
    assert errors(health, 1030.0) == {}
    assert set(errors(health, 1031.0)) == {"bulkhead-podsync", "bulkhead-volume"}


def test_a_silent_service_fails_after_thirty_seconds_and_recovers_with_a_beat(health: Health) -> None:
    health.note_beat("podsync", {}, 1020.0)
    health.note_beat("volume", {}, 1100.0)
    assert set(errors(health, 1100.0)) == {"bulkhead-podsync"}
    assert "podsync has sent no beat for too long (80 s)" in errors(health, 1100.0)["bulkhead-podsync"]
    health.note_beat("podsync", {}, 1100.0)
    assert errors(health, 1101.0) == {}


def test_beats_of_strangers_are_no_matter(health: Health) -> None:
    health.note_beat("stranger", {"sync": 0.0}, 1000.0)
    assert errors(health, 1000.0) == {}


def test_the_sync_loop_may_stand_five_minutes(health: Health) -> None:
    health.note_log_flushed(1300.0)
    health.note_beat("volume", {}, 1301.0)
    health.note_beat("podsync", {"sync": 1000.5}, 1301.0)
    assert errors(health, 1300.0) == {}
    assert errors(health, 1301.0) == {"syncloop": "sync Loop took longer than expected"}


def test_a_slow_sync_frequency_stretches_the_limit() -> None:
    health = Health((), sync_frequency=400.0, device_socket=SOCKET, now=0.0)
    health.note_beat("podsync", {"sync": 0.0}, 0.0)
    health.note_log_flushed(801.0)
    assert errors(health, 800.0) == {}
    assert "syncloop" in errors(health, 801.0)


def test_a_blocked_log_fails_after_two_minutes() -> None:
    health = Health((), sync_frequency=60.0, device_socket=SOCKET, now=0.0)
    assert errors(health, 120.0) == {}
    assert errors(health, 121.0) == {"log": "logging blocked"}


def test_device_plugins_cannot_register_while_volume_reports_its_socket(health: Health) -> None:
    line = f"{SOCKET}: cannot listen: Is a directory (repair its directory, or restart bootstrap)"
    health.note_beat("podsync", {}, 1001.0, [line])
    health.note_beat("volume", {}, 1001.0, ["/var/lib/kubelet/pods: No space left on device", line])
    assert errors(health, 1002.0) == {"device-plugin": line}
    health.note_beat("volume", {}, 1002.0, ["/var/lib/kubelet/pods: No space left on device"])
    assert errors(health, 1003.0) == {}


GOOD = (Check("ping"), Check("log"))
BAD = (Check("ping"), Check("log", "secret detail"))


def test_health_is_ok_in_two_letters() -> None:
    answer = answer_all(GOOD, {})
    assert (answer.status, answer.body) == (200, "ok")


def test_verbose_lists_every_check() -> None:
    assert answer_all(GOOD, {"verbose": [""]}).body == "[+]ping ok\n[+]log ok\nhealthz check passed\n"


def test_a_failure_is_always_verbose_and_withholds_the_reason() -> None:
    answer = answer_all(BAD, {})
    assert answer.status == 500
    assert answer.body == "[+]ping ok\n[-]log failed: reason withheld\nhealthz check failed\n"


def test_excluded_checks_do_not_count_and_unknown_exclusions_are_named() -> None:
    answer = answer_all(BAD, {"exclude": ["log", "x", "a"], "verbose": [""]})
    assert answer.status == 200
    assert answer.body == (
        "[+]ping ok\n[+]log excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a", "x"\nhealthz check passed\n'
    )


def test_one_check_shows_its_reason() -> None:
    assert answer_one(BAD[1]).body == "internal server error: secret detail\n"
    assert answer_one(BAD[0]).body == "ok"
