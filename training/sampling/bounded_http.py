"""HTTP transports that limit the size of a response."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

MAX_BYTES = 1 << 26
"""Maximum size of a body; a batch of long completions takes a few MiB."""


class _Bounded(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """A body's stream that fails beyond `MAX_BYTES`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size = _add(size, piece)
            yield piece

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._inner:
            size = _add(size, piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()

    def close(self) -> None:
        self._inner.close()


def _add(size: int, piece: bytes) -> int:
    if size + len(piece) > MAX_BYTES:
        raise httpx2.ReadError(f"the response has more than {MAX_BYTES} bytes")
    return size + len(piece)


def _bound(response: httpx2.Response) -> httpx2.Response:
    if response.headers.get("content-encoding", "identity") != "identity":
        # A few compressed bytes can expand to any size.
        raise httpx2.ReadError("the response is compressed, allowed is a plain body")
    response.stream = _Bounded(response.stream)
    return response


class BoundedAsyncTransport(httpx2.AsyncHTTPTransport):
    """A transport for `AsyncClient` with bounded responses."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request that asks for a plain body."""
        request.headers["accept-encoding"] = "identity"
        return _bound(await super().handle_async_request(request))


class BoundedTransport(httpx2.HTTPTransport):
    """A transport for `Client` with bounded responses."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request that asks for a plain body."""
        request.headers["accept-encoding"] = "identity"
        return _bound(super().handle_request(request))
