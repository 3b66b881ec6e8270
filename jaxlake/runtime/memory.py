"""Memory checks that raise an error before a call exhausts the memory of its device."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jaxlake.runtime.cpu_devices import is_tracing

_MIN_CHECKED_BYTES = 1 << 28  # calls that need less are not checked
_CGROUPS = {  # controller: folder, limit, usage, prefix of the statistics that include children
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def require_memory(
    name: str, arguments: Any, count: int, bytes_per_board: int, device: jax.Device | None = None
) -> None:
    """Raise `MemoryError` if the boards of a call do not fit into the free memory.

    Calls under jit are not checked, because the program may run on another device. Neither are
    calls with arrays that are sharded over devices.

    Args:
        name: Name of the calling function, for the message.
        arguments: Its arrays; axes that `jax.vmap` maps over multiply `count`.
        count: Number of boards.
        bytes_per_board: Estimated memory per board.
        device: The device. Defaults to the device that holds the arguments, or else to JAX's
            default device.
    """
    if is_tracing():
        return
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
        _require_under_vmap(name, arguments, count, bytes_per_board, device)
        return
    required_bytes = count * bytes_per_board
    devices = {device} if device else _committed_devices(arguments) or {_default_device()}
    if required_bytes < _MIN_CHECKED_BYTES or len(devices) > 1:
        return
    free_bytes = free_memory(*devices)
    if free_bytes is not None and required_bytes > free_bytes:
        raise MemoryError(
            f"{name}: {count:,} boards with plans of this length need about "
            f"{required_bytes / 1e9:.1f} GB, but {free_bytes / 1e9:.1f} GB of memory are free; use "
            "fewer boards, or shorter plans"
        )


def _require_under_vmap(name: str, arguments: Any, count: int, *options: Any) -> None:
    """Call `require_memory` in the innermost `jax.vmap`, which knows the size of its axis."""

    @jax.custom_batching.custom_vmap
    def identity(arguments: Any) -> Any:
        return arguments

    @identity.def_vmap
    def check(axis_size: int, in_batched: list[Any], arguments: Any) -> tuple[Any, Any]:
        require_memory(name, arguments, count * axis_size, *options)
        return arguments, in_batched[0]

    identity(arguments)


def free_memory(device: jax.Device) -> int | None:
    """Return the free bytes of a device, or of the host for a CPU; None if unknown."""
    if device.platform == "cpu":
        return min(_read_host_limits(), default=None)
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def _committed_devices(arguments: Any) -> set[jax.Device]:
    """Return the devices to which arrays are committed."""
    arrays = [leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array)]
    return {device for array in arrays if array.committed for device in array.devices()}


def _default_device() -> jax.Device:
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if isinstance(device, str):
        return jax.local_devices(backend=device)[0]
    return device or jax.local_devices()[0]


def _read_host_limits() -> Iterator[int]:
    """Yield the free bytes of this machine and those below each limit of this process (Linux)."""
    if match := re.search(r"^MemAvailable:\s+(\d+) kB", _read_text("/proc/meminfo"), re.MULTILINE):
        yield int(match[1]) << 10
    if sys.platform == "linux":
        import resource  # not on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - int(_read_text("/proc/self/statm").split()[0]) * resource.getpagesize()
    for line in _read_text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in _CGROUPS:
            continue
        root, *names, prefix = _CGROUPS[controllers]
        cgroup = Path(root, path.strip("/"))
        for folder in (cgroup, *cgroup.parents):
            limit_text, usage_text = (_read_text(folder / name).strip() for name in names)
            if limit_text.isdigit() and usage_text.isdigit():
                cache_sizes = re.findall(
                    rf"^{prefix}(?:in)?active_file (\d+)",
                    _read_text(folder / "memory.stat"),
                    re.MULTILINE,
                )
                yield int(limit_text) - int(usage_text) + sum(map(int, cache_sizes))


def _read_text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
