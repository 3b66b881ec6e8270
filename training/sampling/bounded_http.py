"""An HTTP transport that limits the size of a response."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2

MAX_BYTES = 1 << 26
"""Maximum size of a body; a batch of long completions takes a few MiB."""


class _BoundedStream(httpx2.AsyncByteStream):
    """A body's stream that fails beyond `MAX_BYTES`."""

    def __init__(self, stream: Any) -> None:
        self._inner = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_BYTES:
                raise httpx2.ReadError(f"the response has more than {MAX_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BoundedAsyncTransport(httpx2.AsyncHTTPTransport):
    """A transport for `AsyncClient` with bounded responses."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request that asks for a plain body."""
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few compressed bytes can expand to any size.
            raise httpx2.ReadError("the response is compressed; it must be a plain body")
        response.stream = _BoundedStream(response.stream)
        return response
