"""Compiled programs kept whole on disk, beside those that JAX keeps.

JAX finds what it kept by the program's text, so that a process traces and lowers it first. For the
solver that is most of the time of a command that solves one board. Here the key is known without a
trace: it is made of the sources, the versions, the settings, and the shapes of the arguments.
"""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

import jaxlake
from jaxlake.command_line.compilation_cache import machine_digest
from jaxlake.files import write_bytes_whole

Function = Callable[[Any], Any]


def keep_program(name: str, function: Function, like: Any) -> Function:
    """Return the function as under `jax.jit`, but later processes load the compiled programs.

    Only on CPUs, and where JAX keeps compiled programs, too (`jax_compilation_cache_dir`).

    Args:
        name: stands for the function: code of jaxlake alone, and what it was given beforehand.
        function: from one pytree of arrays to another.
        like: any pytree of the structure of its results.
    """
    jitted = jax.jit(function)
    programs: dict[Any, Function] = {}

    def call(argument: Any) -> Any:
        leaves, tree = jax.tree.flatten(argument)
        shapes = (tree, *((np.shape(leaf), str(np.result_type(leaf))) for leaf in leaves))
        if shapes in programs:
            return programs[shapes](argument)
        if (folder := _folder()) is None:
            return jitted(argument)
        key = hashlib.sha256(repr((name, shapes, _circumstances())).encode()).hexdigest()
        path = folder / f"{name.split()[0]}-{key}.program"
        trees = jax.tree.structure(((argument,), {})), jax.tree.structure(like)
        # Whatever is wrong with the file, the program is compiled and the file written anew.
        with suppress(Exception):
            payload = zlib.decompress(path.read_bytes())
            program = serialize_executable.deserialize_and_load(payload, *trees)
            results = jax.block_until_ready(program(argument))
            programs[shapes] = program
            return results
        programs[shapes] = program = _compile(jitted, argument)
        with suppress(OSError, ValueError):  # no room, or a program that JAX can't write
            payload, *made = serialize_executable.serialize(program)
            if tuple(made) == trees:
                write_bytes_whole(path, zlib.compress(payload, level=1))
        return program(argument)

    return call


def _folder() -> Path | None:
    """Return where programs are kept; None: they are not."""
    settings = jax.config.values
    folder = settings["jax_compilation_cache_dir"]
    kept = settings["jax_enable_compilation_cache"] and jax.default_backend() == "cpu"
    return Path(folder) if folder and kept else None


def _compile(jitted: Any, argument: Any) -> Any:
    """Compile without JAX's own cache: what JAX loads from there can't be written a second time."""
    lowered = jitted.lower(argument)
    with _without_cache():
        return lowered.compile()


@contextmanager
def _without_cache() -> Iterator[None]:
    compilation_cache.reset_cache()  # JAX looks at the setting once only
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()


@cache
def _circumstances() -> tuple[Any, ...]:
    """Return all that decides what a function of jaxlake is compiled to, but for its arguments."""
    sources = hashlib.sha256()
    folder = Path(jaxlake.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        sources.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    settings = {name: v for name, v in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    settings.pop("JAX_COMPILATION_CACHE_DIR", None)
    return (
        sources.hexdigest(),
        (jax.__version__, jaxlib.__version__, np.__version__),
        (machine_digest(), jax.device_count()),
        (sorted(settings.items()), jax.config.values["jax_enable_x64"]),
    )
