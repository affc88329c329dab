"""server relies on private attributes of aiohttp, so the one version that has them all is declared and installed."""

import ast
import asyncio
import importlib.metadata
import inspect
import tomllib
from pathlib import Path

from aiohttp import web
from aiohttp.http_parser import HttpRequestParser

from services.server.adapters import hijack, http_limits

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
OF_A_CONNECTION = {
    *("_buffer_paused", "_close", "_current_request", "_data_received_cb", "_force_close", "_max_msg_queue_size"),
    *("_messages", "_msg_queue_resume_size", "_parser", "_payload_parser", "_request_count", "_request_in_progress"),
    "_upgraded",
}
OF_A_SERVER = {"_kwargs"}


def private_names(*classes: type) -> set[str]:
    """The private attributes that the code of these classes uses and their own code does not define."""
    used, own = set(), set()
    for each in classes:
        tree = ast.parse(inspect.getsource(each))
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        used |= {node.attr for node in attributes if node.attr.startswith("_") and not node.attr.startswith("__")}
        own |= {slot for slot in vars(each).get("__slots__", ()) if slot.startswith("_")}
    return used - own


async def test_aiohttp_has_each_private_attribute_that_is_used() -> None:
    server = web.Server(_no_answer)
    connection = web.RequestHandler(server, loop=asyncio.get_running_loop())
    assert private_names(http_limits.Connection) == OF_A_CONNECTION
    assert private_names(http_limits.LimitedServer) == {*OF_A_SERVER, "_answer", "_ends"}
    assert private_names(hijack.Hijacked) == set()
    assert {name for name in OF_A_CONNECTION if not hasattr(connection, name)} == set()
    assert {name for name in OF_A_SERVER if not hasattr(server, name)} == set()
    HttpRequestParser(connection, asyncio.get_running_loop(), 4096, max_headers=200, max_msg_queue_size=2)


def test_exactly_this_version_is_declared() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    [aiohttp] = [one for one in declared if one.startswith("aiohttp=")]
    assert aiohttp == f"aiohttp=={importlib.metadata.version('aiohttp')}"


async def _no_answer(_request: web.BaseRequest) -> web.StreamResponse:
    raise NotImplementedError
