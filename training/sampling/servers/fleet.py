"""Several vLLM servers that answer one rollout: who lives, who answers what, who has which weights.

A request that a server leaves unanswered goes to those that are left. A server that was gone gets
nothing to answer until it has the newest weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import httpx2

from training.errors import UserError
from training.run.progress import console
from training.sampling.servers.client import (
    ServerGoneError,
    VllmServer,
    deal,
    open_client,
    together,
)
from training.sampling.servers.process import ServerProcess
from training.schema import Sampling

T = TypeVar("T")

_REQUESTS_AT_ONCE = 256
"""So many requests wait for one server at a time; each is for all answers to a prompt."""


class AllServersGoneError(UserError):
    """No server is left that could be asked."""


class ServerFleet:
    """Servers that hold the same weights, under the names that a `vllm.LLM` has for its methods.

    Each method calls all servers that live, at the same time. One that can't be reached any more is
    lost: the terminal says so, and it is asked for nothing until `gather_again` finds it.
    """

    def __init__(self, servers: Sequence[VllmServer], settings: Sampling) -> None:
        """Take servers that are ready (`connect`)."""
        self._servers = list(servers)
        self._settings = settings
        self._limits = settings.served
        self._lost: dict[VllmServer, str] = {}  # why
        self._prepare: list[tuple[str, Any]] = []  # what a server is told once

    @property
    def live(self) -> list[VllmServer]:
        """The servers that can be asked; an `AllServersGoneError` says why there are none."""
        live = [server for server in self._servers if server not in self._lost]
        if not live:
            reasons = "; ".join(f"{one.address}: {why}" for one, why in self._lost.items())
            raise AllServersGoneError(
                f"sampling.servers: all {len(self._servers)} vLLM servers are gone ({reasons}). "
                "The run goes on from its last checkpoint with the same command"
            )
        return live

    def connect(self) -> None:
        """Wait until all servers are ready, and see that they fit the run.

        Raises:
            UserError: One is not ready within `sampling.servers.start_seconds`, is no vLLM server,
                or has other settings than the run.
        """
        deadline = time.monotonic() + self._limits.start_seconds

        async def wait(client: httpx2.AsyncClient, server: VllmServer) -> None:
            await server.wait_until_ready(client, deadline)
            if server.process is None:
                await server.require_settings(client, self._settings)

        async def all_wait() -> None:
            async with open_client(self._limits) as client:
                await together(*(wait(client, server) for server in self._servers))

        asyncio.run(all_wait())

    def answer(
        self, requests: Sequence[Mapping[str, Any]], version: str, read: Callable[[int, Any], T]
    ) -> list[T]:
        """Let the servers answer requests to /v1/completions, and return what `read` makes of them.

        `read` gets the place of a request and its answer. An answer counts if the server holds the
        weights of `version` before its first one and after it.

        Raises:
            UserError: All servers are gone, or one refuses a request or gives no usable answer.
            SyncError: A server holds other weights.
        """
        answers: dict[int, T] = {}

        async def share(client: httpx2.AsyncClient, server: VllmServer, part: list[int]) -> None:
            limit = asyncio.Semaphore(max(_REQUESTS_AT_ONCE, self._settings.max_num_seqs))

            async def one(place: int) -> None:
                async with limit:
                    said = await server.post(client, "/v1/completions", requests[place])
                await server.require_version(client, version)
                try:
                    answers[place] = read(place, said)
                except UserError as error:
                    raise UserError(f"{server.address}: {error}") from None

            async def all_of_them() -> None:
                await server.require_version(client, version)
                await together(*(one(place) for place in part))

            if not await self._watched(client, server, all_of_them()):
                await everyone(client, [place for place in part if place not in answers])

        async def everyone(client: httpx2.AsyncClient, places: list[int]) -> None:
            live = self.live
            parts = zip(live, deal(places, len(live)), strict=True)
            await together(*(share(client, server, part) for server, part in parts if part))

        async def all_answer() -> None:
            async with open_client(self._limits) as client:
                await everyone(client, list(range(len(requests))))

        asyncio.run(all_answer())
        return [answers[place] for place in range(len(requests))]

    def call(self, method: str, path: str, body: Any = None) -> dict[VllmServer, Any]:
        """Call all servers that live, and return what each says; those that are lost say nothing.

        Raises:
            UserError: A server refuses, or none is left.
        """
        said: dict[VllmServer, Any] = {}

        async def ask(client: httpx2.AsyncClient, server: VllmServer) -> None:
            said[server] = await (
                server.get(client, path) if method == "GET" else server.post(client, path, body)
            )

        return {server: said[server] for server in self._each(ask)}

    def require_version(self, version: str) -> None:
        """Raise a `SyncError` if a server that lives holds other weights than these."""
        self._each(lambda client, server: server.require_version(client, version))

    def _each(
        self,
        work: Callable[[httpx2.AsyncClient, VllmServer], Coroutine[Any, Any, None]],
    ) -> list[VllmServer]:
        """Do the work with every server that lives, at the same time; return those that still do.

        Raises:
            AllServersGoneError: None is left, before the work or after it.
        """

        async def everywhere() -> None:
            async with open_client(self._limits) as client:
                await together(
                    *(self._watched(client, one, work(client, one)) for one in self.live)
                )

        asyncio.run(everywhere())
        return self.live

    async def _watched(
        self, client: httpx2.AsyncClient, server: VllmServer, work: Coroutine[Any, Any, None]
    ) -> bool:
        """Do the work while the server lives, and return whether it was done; else it is lost."""
        watch = asyncio.create_task(server.watch(client, self._limits.silence_seconds))
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({watch, task}, return_when=asyncio.FIRST_COMPLETED)
            await (task if task.done() else watch)  # the watch ends by an error alone
            return True
        except ServerGoneError as error:
            self._lose(server, str(error))
            return False
        finally:
            watch.cancel()
            task.cancel()
            await asyncio.gather(watch, task, return_exceptions=True)

    def _lose(self, server: VllmServer, reason: str) -> None:
        if server in self._lost:
            return
        if server.process is not None:
            if end := server.process.end():
                reason = f"{reason} ({end})"
            server.process.kill()
        self._lost[server] = reason
        left = len(self._servers) - len(self._lost)
        console.print(
            f"vLLM server {server.address} is gone: {reason}. {left} of {len(self._servers)} go on",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )

    def gather_again(self) -> None:
        """Take back servers elsewhere that were lost and are there again; they need new weights."""

        async def ask(client: httpx2.AsyncClient, server: VllmServer) -> None:
            if await server.problem(client) is not None:
                return
            try:
                await server.require_settings(client, self._settings)
                for path, body in self._prepare:
                    await self._tell_once(client, server, path, body)
            except (ServerGoneError, UserError) as error:
                self._lost[server] = str(error)
                return
            del self._lost[server]
            console.print(f"vLLM server {server.address} is back", markup=False, soft_wrap=True)

        async def all_ask() -> None:
            async with open_client(self._limits) as client:
                elsewhere = [server for server in self._lost if server.process is None]
                await together(*(ask(client, server) for server in elsewhere))

        if self._lost:
            asyncio.run(all_ask())

    def close(self) -> None:
        """End the servers that were started here."""
        processes = [server.process for server in self._servers if server.process is not None]
        with ThreadPoolExecutor(max(len(processes), 1)) as pool:
            list(pool.map(ServerProcess.close, processes))

    # Under vLLM's names, so that transports of weights take the fleet for an engine.

    def init_weight_transfer_engine(self, request: Mapping[str, Any]) -> None:
        """Let the servers prepare for weights, also those that come back later."""
        path = "/init_weight_transfer_engine"
        self._prepare.append((path, request))
        self._each(lambda client, server: self._tell_once(client, server, path, request))

    async def _tell_once(
        self, client: httpx2.AsyncClient, server: VllmServer, path: str, body: Any
    ) -> None:
        """Prepare a server, and end an update of weights that another run or a loss left open."""
        await server.post(client, path, body)
        with suppress(UserError):  # none was open
            await server.post(client, "/finish_weight_update", {})

    def start_weight_update(self) -> None:
        """Begin to replace all weights."""
        self.call("POST", "/start_weight_update")

    def update_weights(self, request: Mapping[str, Any]) -> None:
        """Replace some weights."""
        self.call("POST", "/update_weights", request)

    def finish_weight_update(self) -> None:
        """Compute with the new weights from here on."""
        self.call("POST", "/finish_weight_update", {})

    def shutdown_weight_transfer_engine(self) -> None:
        """Let go of what connects the servers to the trainer."""
        self.call("POST", "/shutdown_weight_transfer_engine")

    def collective_rpc(
        self, method: str, kwargs: Mapping[str, Any] | None = None
    ) -> dict[VllmServer, list[Any]]:
        """Call a method of every worker; returns what the workers of each server give."""
        body = {"method": method, "kwargs": dict(kwargs or {})}
        said = self.call("POST", "/collective_rpc", body)
        return {server: (one or {}).get("results", []) for server, one in said.items()}
