"""Programs compiled side by side, before the first of them is called.

XLA compiles most of a program on one core. Programs that are needed one after the other can be
compiled at the same time, each by a thread, while Python traces the next one.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax


def placed(*arguments: Any) -> bool:
    """Tell whether any array was put on certain devices, as by `jax.device_put(x, device)`."""
    return any(getattr(leaf, "committed", False) for leaf in jax.tree.leaves(arguments))


def compile_ahead(programs: Iterable[jax.stages.Lowered]) -> None:
    """Compile programs as they come; a later call of the same function compiles nothing.

    JAX finds what was compiled by what was lowered, so calls have to have the same shapes, dtypes
    and static arguments, and the same settings of JAX. Shapes say nothing of devices: arrays that
    are `placed` have programs of their own.
    """
    with ThreadPoolExecutor() as threads:
        compiled = [threads.submit(program.compile) for program in programs]
    for one in compiled:
        one.result()
