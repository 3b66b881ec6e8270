"""Communication between the processes of a run, each with its own devices (`jax.distributed`).

All processes execute the same program on the same values, and exchange messages through JAX's
coordination service. Process 0 writes the files. A single process never waits.
"""

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

from jaxlake.command_line.endings import TERMINATED, end_children, get_ending
from jaxlake.errors import escape_controls
from training.errors import UserError

_POLL_MS = 1000
_FAILED = "jaxlake/failed"
_SECONDS_TO_READ = 3.0
"""Seconds that process 0 stays alive after a failure, so that the others can read the reason."""

_round_numbers = itertools.count()
"""Numbers the exchanges between the processes."""


class PeerError(UserError):
    """Another process of the run has failed, has disappeared, or is out of step."""


@dataclass(frozen=True)
class ClusterSettings:
    """How this process joins the other processes of a run."""

    coordinator: str | None  # HOST:PORT of process 0; None: from the cluster's environment
    processes: int | None
    process: int | None  # number of this process, from 0
    heartbeat_seconds: int  # time without a heartbeat before a process is considered dead


def join(cluster: ClusterSettings) -> None:
    """Connect to the other processes; call this before any use of a device.

    Raises:
        UserError: The other processes can't be reached, or JAX does not support the cluster.
    """
    # Its handler would swallow SIGTERM, by which schedulers and users end a process.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            cluster.coordinator,
            cluster.processes,
            cluster.process,
            local_device_ids=_local_device_ids(),
            cluster_detection_method=None if cluster.coordinator is None else "deactivate",
            heartbeat_timeout_seconds=cluster.heartbeat_seconds,
            coordinator_bind_address=cluster.coordinator if cluster.process == 0 else None,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            f"--coordinator {cluster.coordinator or 'auto'}: the processes can't connect: "
            f"{_first_line(error)}"
        ) from error


def _local_device_ids() -> list[int] | None:
    """Return the accelerators of this process on its host; [] means all, None JAX's default."""
    if os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    # Under SLURM and Open MPI, JAX's default is one accelerator even for a single process.
    if "OMPI_MCA_orte_hnp_uri" in os.environ:
        is_alone = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == "1"
    else:
        num_nodes = os.environ.get("SLURM_STEP_NUM_NODES")  # equals the tasks if each node has one
        is_alone = num_nodes is not None and num_nodes == os.environ.get("SLURM_NTASKS")
    return [] if is_alone else None


def is_single_process() -> bool:
    """Return whether this process is the only one of its run."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def is_first() -> bool:
    """Return whether this is process 0, which writes the files."""
    return is_single_process() or jax.process_index() == 0


def gather_values(exchange: str, value: str = "") -> list[str]:
    """Return the values of all processes, ordered by process number.

    Args:
        exchange: Name of the exchange, which must be equal in all processes.
        value: The value of this process.

    Raises:
        PeerError: Another process is at a different exchange, has failed, or has disappeared.
    """
    if is_single_process():
        return [value]
    client, round_number = _state().client, next(_round_numbers)
    client.key_value_set(f"jaxlake/{round_number}/{jax.process_index()}", f"{exchange}\n{value}")
    messages = [
        _await(f"jaxlake/{round_number}/{index}", exchange) for index in range(jax.process_count())
    ]
    # A process in this round has read all values of the previous round, so they can be deleted.
    with suppress(jax.errors.JaxRuntimeError):
        client.key_value_delete(f"jaxlake/{round_number - 1}/{jax.process_index()}")
    for index, message in enumerate(messages):
        if (name := message.partition("\n")[0]) != exchange:
            raise PeerError(f"process {index} is at {name!r}, but this process at {exchange!r}")
    return [message.partition("\n")[2] for message in messages]


def wait_for_all(exchange: str) -> None:
    """Wait for all processes; raise the errors of `gather_values`."""
    gather_values(exchange)


def call_in_first(exchange: str, function: Callable[[], Any]) -> Any:
    """Call a function in process 0, and return its value in all processes.

    Args:
        exchange: Name of the exchange, which must be equal in all processes.
        function: Returns None, a boolean, a number, text, a NumPy array of numbers, or lists and
            dictionaries of these with text as keys. Values are sent as JSON, so that no process
            can make others execute code.

    Returns:
        The value of the function.

    Raises:
        UserError: The function raised it. Other errors end process 0.
        PeerError: See `gather_values`.
    """
    if is_single_process():
        return function()
    message = ""
    if is_first():
        try:
            value, failure = function(), None
        except UserError as error:
            value, failure = None, str(error)
        payload = zlib.compress(json.dumps([value, failure], default=_array_to_json).encode())
        message = base64.b85encode(payload).decode()
    text = zlib.decompress(base64.b85decode(gather_values(exchange, message)[0]))
    value, failure = json.loads(text, object_hook=_array_from_json)
    if failure is not None:
        raise UserError(failure)
    return value


_ARRAY = "jaxlake array"


def _array_to_json(value: Any) -> dict[str, Any]:
    """Encode an array of numbers as JSON; raise a `TypeError` for other objects."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"values must be plain data or arrays, got {type(value).__name__}")
    data = base64.b85encode(array.tobytes()).decode()
    return {_ARRAY: data, "dtype": array.dtype.name, "shape": list(array.shape)}


def _array_from_json(value: dict[str, Any]) -> Any:
    if _ARRAY not in value:
        return value
    data = base64.b85decode(value[_ARRAY])
    return np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"]).copy()


def require_same(exchange: str, values: Any) -> None:
    """Raise a `PeerError` unless a pytree of arrays, text and bytes is equal in all processes."""
    if is_single_process():
        return
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(values):
        array = np.asarray(leaf)
        digest.update(f"{array.shape} {array.dtype} ".encode())
        digest.update(array.tobytes())
    digests = gather_values(exchange, digest.hexdigest())
    different_indices = [str(index) for index, digest in enumerate(digests) if digest != digests[0]]
    if different_indices:
        raise PeerError(
            f"{exchange}: process {', '.join(different_indices)} has other values than process 0; "
            "all must run the same versions on the same kind of machine"
        )


def local_copy(array: Any) -> Any:
    """Return a whole array on one device of this process; all processes must call this together."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return array
    if not array.is_fully_replicated:
        mesh = getattr(array.sharding, "mesh", None)
        assert isinstance(mesh, Mesh)
        array = _replicate(mesh)(array)
    return array.addressable_data(0)


def put_on_devices(buffer: np.ndarray, sharding: NamedSharding | None) -> jax.Array:
    """Put an array that all processes have on devices; each process fills its own devices."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(buffer, sharding)
    return jax.make_array_from_callback(buffer.shape, sharding, lambda index: buffer[index])


@contextmanager
def joined_cluster(cluster: ClusterSettings | None) -> Iterator[None]:
    """Run the block together with other processes, or by itself if `cluster` is None.

    If the block fails, this process sends the reason to the others and exits immediately, with the
    status and message of `jaxlake.command_line.entry`. An ordinary exit would wait for the others.
    """
    if cluster is None:
        yield
        return
    join(cluster)
    try:
        yield
        wait_for_all("the end of the command")
    except BaseException as error:
        _report_and_exit(error)


def _report_and_exit(error: BaseException) -> NoReturn:
    if _is_connection_error(error):
        error = PeerError(_read_failure() or f"a process of this run is gone: {_first_line(error)}")
    ending = get_ending(error)
    if ending is None:
        traceback.print_exception(error)
    elif ending.message is not None:
        print(f"jaxlake: error: {escape_controls(ending.message)}", file=sys.stderr)
    if not isinstance(error, PeerError):
        _publish_failure(error)
    end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(1 if ending is None else ending.status)


def _publish_failure(error: BaseException) -> None:
    """Publish the reason of a failure, which waiting processes check for."""
    if isinstance(error, SystemExit) and error.code == TERMINATED:
        reason = "was ended by SIGTERM"
    elif isinstance(error, KeyboardInterrupt):
        reason = "was interrupted"
    else:
        reason = f"has failed: {_first_line(error) or type(error).__name__}"
    index = _state().process_id  # JAX's public function would wait for the other processes
    message = f"process {index} on {socket.gethostname()} {reason}"
    with suppress(jax.errors.JaxRuntimeError):
        _state().client.key_value_set(_FAILED, message)
    if index == 0:  # this process serves the message
        time.sleep(_SECONDS_TO_READ)


def _await(key: str, exchange: str) -> str:
    """Wait for a value; raise a `PeerError` if a process fails or disappears."""
    client = _state().client
    while True:
        try:
            value: str = client.blocking_key_value_get(key, _POLL_MS)
            return value
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise PeerError(
                    f"{exchange}: a process of this run is gone: {_first_line(error)}"
                ) from error
        if (failure := _read_failure()) is not None:
            raise PeerError(f"{exchange}: {failure}")


def _read_failure() -> str | None:
    """Return the message of a failed process, or None."""
    try:
        return str(_state().client.key_value_try_get(_FAILED))
    except jax.errors.JaxRuntimeError:  # missing key, or no server
        return None


def _is_connection_error(error: BaseException) -> bool:
    """Return whether an error means that another process is unreachable."""
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError, TimeoutError)):
        return False
    return any(word in str(error) for word in ("Gloo", "NCCL", "Coordination", "heartbeat"))


def _first_line(error: BaseException) -> str:
    """Return the first line of a message."""
    return str(error).strip().partition("\n")[0]


@functools.cache
def _replicate(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))


def _state() -> Any:
    from jax._src import distributed  # JAX has no public name for its coordination service

    return distributed.global_state
