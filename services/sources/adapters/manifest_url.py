"""Reads the static pod URL by one bounded GET; it decides nothing."""

from collections.abc import Mapping

import aiohttp

from services.sources.core.yaml_document import MAX_BYTES
from shared.kube.environment_proxy import UnsupportedProxyError, proxy_of_environment

TIMEOUT_SECONDS = 10.0  # for everything from the connection to the last byte, as in the kubelet
MAX_REDIRECTS = 10
_MAX_REASON_CHARACTERS = 100  # of the text after a status code


class ManifestUrlError(Exception):
    """The URL returned no document. `str()` is one line without the URL and its headers, which may contain secrets."""


class ManifestUrl:
    """Reads the URL. `headers`: each name with its values; all are sent."""

    def __init__(self, url: str, headers: Mapping[str, tuple[str, ...]], timeout: float = TIMEOUT_SECONDS) -> None:
        self._url = url
        self._headers = [(name, value) for name, values in headers.items() for value in values]
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def read(self) -> bytes:
        """Return the body of a 200, of at most 10 MiB. It follows redirects, and uses the proxy that the environment
        names. Raises ManifestUrlError."""
        headers = [("Accept-Encoding", "identity"), *self._headers]  # a small compressed body may be a large one
        try:
            proxy = proxy_of_environment(self._url) or None
            async with (
                aiohttp.ClientSession(timeout=self._timeout, auto_decompress=False) as session,
                session.get(self._url, headers=headers, max_redirects=MAX_REDIRECTS, proxy=proxy) as response,
            ):
                if response.status != 200:
                    reason = "".join(filter(str.isprintable, (response.reason or "")[:_MAX_REASON_CHARACTERS]))
                    raise ManifestUrlError(f"the server answers with {response.status} {reason}".rstrip())
                return await _bounded(response.content)
        except TimeoutError as error:
            raise ManifestUrlError(f"no complete answer within {self._timeout.total:.0f} s") from error
        except aiohttp.ClientPayloadError as error:
            raise ManifestUrlError("the body ends before its announced length") from error
        except aiohttp.TooManyRedirects as error:
            raise ManifestUrlError(f"more than {MAX_REDIRECTS} redirects") from error
        except aiohttp.InvalidURL as error:
            raise ManifestUrlError("it, or a redirect of it, is not a URL of http or https") from error
        except aiohttp.ClientOSError as error:
            raise ManifestUrlError(f"cannot connect: {error.strerror or type(error).__name__}") from error
        except UnsupportedProxyError as error:
            raise ManifestUrlError(str(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ManifestUrlError(f"cannot be read: {type(error).__name__}") from error


async def _bounded(body: aiohttp.StreamReader) -> bytes:
    content = bytearray()
    async for chunk in body.iter_any():
        content += chunk
        if len(content) > MAX_BYTES:
            raise ManifestUrlError(f"the body is larger than {MAX_BYTES >> 20} MiB")
    return bytes(content)
