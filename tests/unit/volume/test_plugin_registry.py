"""Which sockets are tried and which plugins are registered, as sockets come, go, fail and are replaced."""

from bus.messages.volume import RegisteredPlugin
from services.volume.core.registration.plugin_registry import MAX_FAILURES, PluginRegistry

ONE, TWO = (1, 10, 100), (1, 11, 200)


def plugin(name: str = "a", endpoint: str = "/e") -> RegisteredPlugin:
    return RegisteredPlugin(type="CSIPlugin", name=name, endpoint=endpoint, version="1.0.0")


def test_a_socket_is_tried_once_until_its_outcome_is_there() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    assert registry.due(0.0) == [("/a", ONE)]
    assert (registry.due(0.0), registry.complete) == ([], False)
    assert registry.registered("/a", ONE, plugin())
    assert registry.plugins() == {"CSIPlugin/a": plugin()}
    assert registry.due(1000.0) == []


def test_an_empty_directory_is_complete_once_it_was_read() -> None:
    registry = PluginRegistry()
    looks = [registry.complete]
    registry.set_sockets({})
    assert [*looks, registry.complete] == [False, True]


def test_a_failure_is_tried_again_later_and_later() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    now = 0.0
    waits = []
    for _ in range(10):
        assert registry.due(now) == [("/a", ONE)]
        waits.append(registry.failed("/a", ONE, now))
        assert registry.due(now) == [] and registry.next_attempt(now) == now + waits[-1]
        now += waits[-1]
    assert waits[:3] == [0.5, 1.0, 2.0] and waits[-1] == 122.0


def test_a_socket_that_always_fails_keeps_the_list_incomplete_for_minutes_and_is_still_tried() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE, "/b": TWO})
    registry.due(0.0)
    registry.registered("/b", TWO, plugin("b"))
    now, waits = 0.0, list[float]()
    while not registry.complete and now < 3600:
        waits.append(registry.failed("/a", ONE, now))
        now += waits[-1]
        assert registry.due(now) == [("/a", ONE)]
    assert 120 < sum(waits[:-1]) < 600
    assert registry.registered("/a", ONE, plugin())
    assert registry.plugins().keys() == {"CSIPlugin/a", "CSIPlugin/b"}


def test_a_socket_that_replaces_one_that_always_failed_is_waited_for() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    for _ in range(MAX_FAILURES):
        registry.due(1e9)
        registry.failed("/a", ONE, 0.0)
    assert registry.complete
    registry.set_sockets({"/a": TWO})
    assert not registry.complete


def test_a_refused_plugin_is_tried_again_only_once_its_socket_is_replaced() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    registry.due(0.0)
    registry.refused("/a", ONE)
    assert registry.complete and registry.due(1000.0) == [] and registry.plugins() == {}
    registry.set_sockets({"/a": TWO})
    assert registry.due(1000.0) == [("/a", TWO)]


def test_a_replaced_socket_keeps_its_registration_until_the_new_one_answers() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    registry.due(0.0)
    registry.registered("/a", ONE, plugin())
    registry.set_sockets({"/a": TWO})
    assert registry.plugins() == {"CSIPlugin/a": plugin()}
    assert registry.due(0.0) == [("/a", TWO)]
    registry.failed("/a", TWO, 0.0)
    assert registry.plugins() == {"CSIPlugin/a": plugin()}
    registry.due(1.0)
    registry.registered("/a", TWO, plugin("b"))
    assert registry.plugins() == {"CSIPlugin/b": plugin("b")}


def test_an_answer_of_a_socket_that_is_gone_or_replaced_counts_for_nothing() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    registry.due(0.0)
    registry.set_sockets({"/a": TWO})
    assert registry.due(0.0) == []  # one attempt at a time
    assert not registry.registered("/a", ONE, plugin())
    assert registry.plugins() == {} and registry.due(0.0) == [("/a", TWO)]
    registry.set_sockets({})
    assert not registry.registered("/a", TWO, plugin())
    assert registry.plugins() == {}


def test_a_socket_that_goes_and_comes_back_during_an_attempt_has_an_attempt_of_its_own() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE})
    registry.due(0.0)
    registry.set_sockets({})
    registry.set_sockets({"/a": TWO})
    assert registry.due(0.0) == [("/a", TWO)]
    registry.failed("/a", ONE, 0.0)
    assert registry.due(0.0) == []
    assert registry.registered("/a", TWO, plugin())


def test_a_plugin_leaves_with_its_socket() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE, "/b": TWO})
    registry.due(0.0)
    registry.registered("/a", ONE, plugin("a"))
    registry.registered("/b", TWO, plugin("b"))
    assert registry.other("/b", "CSIPlugin", "a") == plugin("a")
    assert registry.other("/a", "CSIPlugin", "a") is None
    registry.set_sockets({"/b": TWO})
    assert registry.plugins() == {"CSIPlugin/b": plugin("b")}


def test_of_several_sockets_of_one_plugin_the_one_that_registered_last_counts() -> None:
    registry = PluginRegistry()
    registry.set_sockets({"/a": ONE, "/b": TWO})
    registry.due(0.0)
    for path, identity in (("/b", TWO), ("/a", ONE)):
        registry.registered(path, identity, plugin(endpoint=path))
    assert registry.plugins() == {"CSIPlugin/a": plugin(endpoint="/a")}
    assert registry.named("CSIPlugin", "a") == [plugin(endpoint="/a"), plugin(endpoint="/b")]
    assert registry.named("CSIPlugin", "other") == registry.named("DRAPlugin", "a") == []
    registry.set_sockets({"/b": TWO})
    assert registry.plugins() == {"CSIPlugin/a": plugin(endpoint="/b")}
