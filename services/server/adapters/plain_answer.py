"""Plain text answers to requests."""

from aiohttp import web


def plain(status: int, body: str) -> web.Response:
    """Return an answer of type text/plain; characters that UTF-8 cannot encode become `?`."""
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    return web.Response(status=status, body=body.encode("utf-8", "replace"), headers=headers)


def go_error(status: int, body: str) -> web.Response:
    """Return an answer as Go's http.Error forms it: a line of text, of which no client guesses the type."""
    response = plain(status, f"{body}\n")
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
