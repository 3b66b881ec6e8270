"""Several processes that run one run together, each with its own devices (`jax.distributed`).

All execute the same program on the same values, which they exchange through JAX's coordination
service. Process 0, the first, writes. A single process waits for nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import os
import socket
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxlake.command_line.endings import TERMINATED, end_children, ending_of
from jaxlake.errors import printable
from training.errors import UserError

_POLL_MS = 1000
_FAILED = "jaxlake/failed"
_SECONDS_TO_READ = 3.0
"""How long the first process stays after a failure, so that the others can read why."""


class PeerError(UserError):
    """Another process of the run has failed, is gone, or does something else than this one."""


@dataclass(frozen=True)
class Peers:
    """How the processes of a run find each other."""

    coordinator: str | None  # HOST:PORT of process 0; None: as the cluster says
    processes: int | None
    process: int | None  # number of this one, from 0
    heartbeat_seconds: int  # a process that was not heard of for so long is gone


def join(peers: Peers) -> None:
    """Join the other processes, before anything has touched a device.

    Raises:
        UserError: They can't be found, do not come, or the cluster is none that JAX knows.
    """
    # Its handler would swallow SIGTERM, by which schedulers and users end a process.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            peers.coordinator,
            peers.processes,
            peers.process,
            local_device_ids=_local_device_ids(),
            cluster_detection_method=None if peers.coordinator is None else "deactivate",
            heartbeat_timeout_seconds=peers.heartbeat_seconds,
            coordinator_bind_address=peers.coordinator if peers.process == 0 else None,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        where = peers.coordinator or "auto"
        raise UserError(
            f"--coordinator: got {where}: the processes don't come together: {_line(error)}"
        ) from error


def _local_device_ids() -> list[int] | None:
    """Return which accelerators of its host this process has; [] means all, None: as JAX says."""
    if os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    # Under SLURM and Open MPI JAX gives a process one accelerator, also where it is alone there.
    if "OMPI_MCA_orte_hnp_uri" in os.environ:
        alone_on_host = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"
    else:
        nodes = os.environ.get("SLURM_STEP_NUM_NODES")  # each node of a step has a task at least
        alone_on_host = nodes is not None and nodes == os.environ.get("SLURM_NTASKS")
    return [] if alone_on_host else None


def alone() -> bool:
    """Whether this process is the only one of its run."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return alone() or jax.process_index() == 0


def gather(what: str, value: str = "") -> list[str]:
    """Return the values of all processes, in their order, once each has given its own.

    Raises:
        PeerError: A process is at something else than `what`, has failed, or is gone.
    """
    if alone():
        return [value]
    client, place = _state().client, next(_rounds)
    client.key_value_set(f"jaxlake/{place}/{jax.process_index()}", f"{what}\n{value}")
    told = [_await(f"jaxlake/{place}/{index}", what) for index in range(jax.process_count())]
    # Whoever is in this round has read all values of the last one; those before it nobody needs.
    with suppress(jax.errors.JaxRuntimeError):
        client.key_value_delete(f"jaxlake/{place - 1}/{jax.process_index()}")
    for index, one in enumerate(told):
        if (theirs := one.partition("\n")[0]) != what:
            raise PeerError(f"process {index} is at {theirs!r}, and this one at {what!r}")
    return [one.partition("\n")[2] for one in told]


def wait_for_all(what: str) -> None:
    """Wait until all processes are here; raises as `gather`."""
    gather(what)


def from_first(what: str, function: Callable[[], Any]) -> Any:
    """Call a function in the first process alone, and return its plain value in all of them.

    Plain values are None, booleans, numbers, text and NumPy arrays of numbers, and lists and
    dictionaries of these with text as keys. They travel as JSON, so a peer can send data only.

    A `UserError` of the function is raised in all. Other errors end the first process.
    """
    if alone():
        return function()
    sent = ""
    if is_first():
        try:
            value, failure = function(), None
        except UserError as error:
            value, failure = None, str(error)
        packed = zlib.compress(json.dumps([value, failure], default=_array_to_json).encode())
        sent = base64.b85encode(packed).decode()
    received = zlib.decompress(base64.b85decode(gather(what, sent)[0]))
    value, failure = json.loads(received, object_hook=_array_from_json)
    if failure is not None:
        raise UserError(failure)
    return value


_ARRAY = "jaxlake array"


def _array_to_json(value: Any) -> dict[str, Any]:
    """Write an array of numbers; other objects raise a `TypeError`."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"got {type(value).__name__}, allowed are plain values")
    data = base64.b85encode(array.tobytes()).decode()
    return {_ARRAY: data, "dtype": array.dtype.name, "shape": list(array.shape)}


def _array_from_json(value: dict[str, Any]) -> Any:
    if _ARRAY not in value:
        return value
    data = base64.b85decode(value[_ARRAY])
    return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"]).copy()


def require_same(what: str, values: Any) -> None:
    """Raise a `PeerError` unless a pytree of arrays, text and bytes is equal in all processes."""
    if alone():
        return
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(values):
        array = np.asarray(leaf)
        digest.update(f"{array.shape} {array.dtype} ".encode())
        digest.update(array.tobytes())
    digests = gather(what, digest.hexdigest())
    others = [str(index) for index, one in enumerate(digests) if one != digests[0]]
    if others:
        raise PeerError(
            f"{what}: process {', '.join(others)} has other values than process 0; all must run "
            "the same versions on the same kind of machine"
        )


def local_copy(array: Any) -> Any:
    """Return a whole array on one device of this process; all processes ask for it together."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return array
    if not array.is_fully_replicated:
        mesh = getattr(array.sharding, "mesh", None)
        assert isinstance(mesh, Mesh)
        array = _replicate(mesh)(array)
    return array.addressable_data(0)


def place(buffer: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """Place a host array that all processes have; each hands over the parts of its devices."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(buffer, sharding)
    return jax.make_array_from_callback(buffer.shape, sharding, lambda part: buffer[part])


@contextmanager
def joined(peers: Peers | None) -> Iterator[None]:
    """Run the block together with other processes; None: alone.

    If the block fails, this process tells the others why and ends at once, with the status and the
    message of `jaxlake.command_line.entry`: an ordinary exit would wait for the others.
    """
    if peers is None:
        yield
        return
    join(peers)
    try:
        yield
        wait_for_all("the end of the command")
    except BaseException as error:
        _leave(error)


def _leave(error: BaseException) -> NoReturn:
    if _lost_connection(error):
        error = PeerError(_failure() or f"a process of this run is gone: {_line(error)}")
    ending = ending_of(error)
    if ending is None:
        traceback.print_exception(error)
    elif ending.message is not None:
        print(f"jaxlake: error: {printable(ending.message)}", file=sys.stderr)
    if not isinstance(error, PeerError):
        _tell_failure(error)
    end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(1 if ending is None else ending.status)


def _tell_failure(error: BaseException) -> None:
    """Leave a message for the others, which look for it while they wait."""
    if isinstance(error, SystemExit) and error.code == TERMINATED:
        what_happened = "was ended by SIGTERM"
    elif isinstance(error, KeyboardInterrupt):
        what_happened = "was interrupted"
    else:
        what_happened = f"has failed: {_line(error) or type(error).__name__}"
    number = _state().process_id  # JAX's own function would first wait for the others' devices
    who = f"process {number} on {socket.gethostname()}"
    with suppress(jax.errors.JaxRuntimeError):
        _state().client.key_value_set(_FAILED, f"{who} {what_happened}")
    if number == 0:  # the message is with this process
        time.sleep(_SECONDS_TO_READ)


def _await(key: str, what: str) -> str:
    """Wait for a value; a process that has failed or is gone ends the wait."""
    client = _state().client
    while True:
        try:
            told: str = client.blocking_key_value_get(key, _POLL_MS)
            return told
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise PeerError(f"{what}: a process of this run is gone: {_line(error)}") from error
        if (failed := _failure()) is not None:
            raise PeerError(f"{what}: {failed}")


def _failure() -> str | None:
    """Return what a process that failed has left; None if none has."""
    try:
        return str(_state().client.key_value_try_get(_FAILED))
    except jax.errors.JaxRuntimeError:  # no such key, or nobody who has it
        return None


def _lost_connection(error: BaseException) -> bool:
    """Whether a library says that it can't reach another process."""
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError, TimeoutError)):
        return False
    return any(word in str(error) for word in ("Gloo", "NCCL", "Coordination", "heartbeat"))


def _line(error: BaseException) -> str:
    """Return the first line of a message."""
    return str(error).strip().partition("\n")[0]


@functools.cache
def _replicate(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))


_rounds = itertools.count()


def _state() -> Any:
    from jax._src import distributed  # JAX has no public name for its coordination service

    return distributed.global_state
