"""The loops of a traced program: give each a name that compilers keep, or count its rounds.

A traced program is evaluated anew, equation by equation. The numbers of its loops are those of one
walk over it, so that a name in a compiled program and a count of a run speak of the same loop.

Kernels of Pallas are opaque to the compiler of the rest. For a count they are replaced by what
interprets them, and their loops have numbers after all others.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret  # no public way in
from jax.extend import core

Trace = Any  # jax.extend.core.ClosedJaxpr

_KERNEL = "pallas_call"
_BARRIER = "debug_barrier_p"  # lanes wait for what others write; interpreted, they never have to
_INTERPRETER_ARGUMENTS = (
    *("jaxpr", "debug", "input_output_aliases", "grid_mapping", "mesh", "compiler_params"),
    *("cost_estimate", "out_avals", "metadata", "name"),
)
_LOADS = ("get", "masked_load")
_REDUCTIONS = ("reduce_max", "reduce_min", "reduce_sum")
_LAYOUT = (
    *("broadcast_in_dim", "broadcast_to", "reshape", "squeeze", "expand_dims"),
    *("concatenate", "transpose"),
)

_NESTED = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
"""Where calls keep the function that they call."""


@dataclass(frozen=True)
class Loop:
    """A loop of a traced program."""

    number: int
    function: str  # the function that wrote it, and where
    length: int | None = None  # its rounds, where they don't depend on data


@dataclass(frozen=True)
class Costs:
    """What the instructions of a kernel's program cost, in operations."""

    lanes: int = 32  # of one instruction
    wait: int = 0  # until what is loaded is there
    meeting: int = 0  # until the warps of a program have waited for each other


@dataclass(frozen=True)
class Kernel:
    """A kernel of Pallas, wherever it is called from."""

    name: str
    warps: int  # of a program, each with lanes of its own
    body: Any  # what a program does
    trace: Trace  # what interprets it: a loop over its programs, around its own loops
    first: int  # the number of its first loop


def loops_of(trace: Trace) -> list[Loop]:
    """List all loops, by number."""
    return [
        Loop(number, _written_by(eqn), eqn.params.get("length"))
        for number, eqn in enumerate(_loop_equations(trace.jaxpr))
    ]


def with_names(trace: Trace) -> Callable[..., list[jax.Array]]:
    """Return the flat function of a trace, in which loop number 7 stands in a scope `loop7_`."""
    return lambda *args: _Evaluation(count=False).run(trace, args)


def kernels_of(trace: Trace) -> dict[int, Kernel]:
    """List the kernels by the identity of the equation that calls them."""
    kernels: dict[int, Kernel] = {}
    first = len(loops_of(trace))
    for eqn in _kernel_equations(trace.jaxpr):
        if id(eqn) not in kernels:
            params = {key: eqn.params[key] for key in _INTERPRETER_ARGUMENTS}
            operands = [var.aval for var in eqn.invars]
            inner = jax.make_jaxpr(partial(pallas_call_hlo_interpret, **params))(*operands)
            body = eqn.params["jaxpr"]
            warps = getattr(eqn.params["compiler_params"], "num_warps", None) or 1
            kernels[id(eqn)] = Kernel(_kernel_name(body), warps, body, inner, first)
            first += _number_of_loops(inner.jaxpr)
    return kernels


def operations_of(kernel: Kernel, costs: Costs) -> list[int]:
    """Count what a warp does in one round of each loop of a kernel, without inner loops.

    Whatever is computed, loaded or stored is as many operations as it takes instructions for the
    lanes of a program. What only says where something lies is not counted. Loads between two
    barriers are waited for once. A reduction over the lanes of several warps is one in each warp,
    which is stored, loaded after a barrier, and reduced again.
    """
    bodies = [kernel.body, *(_inner_jaxprs(eqn)[-1] for eqn in _loop_equations(kernel.body))]
    return [_operations(body, costs, kernel.warps) for body in bodies]


def _operations(jaxpr: Any, costs: Costs, warps: int) -> int:
    total, loaded = 0, False
    for eqn in _equations(jaxpr):
        name = eqn.primitive.name
        if name == _BARRIER:
            total, loaded = total + costs.meeting, False
            continue
        results = eqn.invars if name in _REDUCTIONS else eqn.outvars
        shapes = [v.aval.shape for v in results]
        if name in _LAYOUT or not any(shapes):
            continue
        lanes = max(map(math.prod, shapes))
        total += -(-lanes // (costs.lanes * warps))
        if name in _REDUCTIONS and lanes > costs.lanes:
            total += 3 + costs.meeting if warps > 1 else 0
        if name in _LOADS and not loaded:
            total, loaded = total + costs.wait, True
    return total


def _equations(jaxpr: Any) -> Iterator[Any]:
    """List what a body does outside of loops."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("while", "scan"):
            continue
        inner = _inner_jaxprs(eqn)
        for one in inner:
            yield from _equations(one)
        if not inner:
            yield eqn


def with_counts(trace: Trace, costs: Costs) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return a flat function that runs the trace and counts.

    It gives the rounds of each loop, int32 (L,), and for each kernel the operations of the longest
    program of a launch, as of `operations_of`, added up over its launches, int32 (kernels,).
    """
    kernels = kernels_of(trace)
    loops = len(loops_of(trace))
    loops += sum(_number_of_loops(kernel.trace.jaxpr) for kernel in kernels.values())

    def counted(*args: jax.Array) -> tuple[jax.Array, jax.Array]:
        evaluation = _Evaluation(count=True, kernels=kernels)
        # After the loops, two for each kernel: the longest program of this launch, and of all.
        evaluation.counts = jnp.zeros(loops + 2 * len(kernels), jnp.int32)
        for i, kernel in enumerate(kernels.values()):
            weights = np.array(operations_of(kernel, costs), np.int32)
            evaluation.programs[kernel.first] = (loops + 2 * i, weights)
        outputs = evaluation.run(trace, args)
        # What nobody reads would not be computed.
        counts, _ = jax.lax.optimization_barrier((evaluation.counts, outputs))
        return counts[:loops], counts[loops + 1 :: 2]

    return counted


def _loop_equations(jaxpr: Any) -> Iterator[Any]:
    """Walk over all loops, each before those inside it; a function called twice comes twice."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("while", "scan"):
            yield eqn
        for inner in _inner_jaxprs(eqn):
            yield from _loop_equations(inner)


def _kernel_equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == _KERNEL:
            yield eqn
        for inner in _inner_jaxprs(eqn):
            yield from _kernel_equations(inner)


def _inner_jaxprs(eqn: Any) -> list[Any]:
    """List the functions inside an equation in the order in which they are numbered."""
    if eqn.primitive.name == _KERNEL:
        return []
    if eqn.primitive.name == "while":
        found = [eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]]
    elif eqn.primitive.name == "cond":
        found = list(eqn.params["branches"])
    else:
        found = [eqn.params[name] for name in _NESTED if name in eqn.params]
    return [getattr(one, "jaxpr", one) for one in found]


def _number_of_loops(jaxpr: Any) -> int:
    return sum(1 for _ in _loop_equations(jaxpr))


def _written_by(eqn: Any) -> str:
    """Name the function of this project that made an equation."""
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback else ():
        path = Path(frame.file_name)
        if "jaxlake" in path.parts[:-1] and "site-packages" not in path.parts:
            return f"{frame.function_name} ({_in_project(path)}:{frame.line_num})"
    return str(eqn.source_info.name_stack) or "?"


def _kernel_name(body: Any) -> str:
    """Name the function that a kernel's programs run."""
    source = body.debug_info
    return f"{source.func_name} ({_in_project(Path(source.func_filename))}:{source.func_lineno})"


def _in_project(path: Path) -> str:
    """Leave out of a path what says where this project lies; of another file only its name."""
    if "jaxlake" not in path.parts[:-1]:
        return path.name
    return "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index("jaxlake") :])


class _Evaluation:
    """One evaluation of a trace. Loops are met in the order of `_loop_equations`."""

    def __init__(self, *, count: bool, kernels: dict[int, Kernel] | None = None) -> None:
        self.count = count
        self.kernels = kernels or {}
        self.counts: Any = None
        # Where the longest programs stand, and the operations of loops, by a kernel's first loop.
        self.programs: dict[int, tuple[int, np.ndarray]] = {}

    def run(self, trace: Trace, args: Sequence[Any], first: int = 0) -> list[Any]:
        """Evaluate a closed trace whose first loop has the number `first`."""
        return self._evaluate(trace.jaxpr, trace.consts, args, first)

    def _evaluate(
        self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], number: int
    ) -> list[Any]:
        values: dict[Any, Any] = {}
        values.update(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, args, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else values[atom]

        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            name = eqn.primitive.name
            inside = sum(map(_number_of_loops, _inner_jaxprs(eqn)))
            if name == _BARRIER:
                continue
            if id(eqn) in self.kernels:
                kernel = self.kernels[id(eqn)]
                results = self._kernel(kernel, operands)
            elif name == "while":
                results = self._while(eqn, operands, number)
                number += 1 + inside
            elif name == "scan":
                results = self._scan(eqn, operands, number)
                number += 1 + inside
            elif inside:
                make = self._cond if name == "cond" else self._call
                results = make(eqn, operands, number)
                number += inside
            else:
                params = eqn.primitive.get_bind_params(eqn.params)
                results = eqn.primitive.bind(*operands, **params)
                results = results if eqn.primitive.multiple_results else [results]
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _counting(self, work: Callable[[Any], Any], counts: Any, carried: Any) -> tuple[Any, Any]:
        """Do some work with `counts` for the running counts: (counts after it, its results)."""
        self.counts, kept = counts, self.counts
        results = work(carried)
        after, self.counts = self.counts, kept
        return after, results

    def _kernel(self, kernel: Kernel, operands: list[Any]) -> list[Any]:
        if kernel.first not in self.programs:
            return self.run(kernel.trace, operands, kernel.first)
        place, _ = self.programs[kernel.first]
        self.counts = self.counts.at[place].set(0)
        results = self.run(kernel.trace, operands, kernel.first)
        self.counts = self.counts.at[place + 1].add(self.counts[place])
        return results

    def _note_program(self, number: int, before: Any, after: Any) -> Any:
        """Keep what a program did, which is a round of a kernel's first loop, if it is longest."""
        if number not in self.programs:
            return after
        place, operations = self.programs[number]
        own = slice(number, number + len(operations))
        return after.at[place].max(jnp.sum((after[own] - before[own]) * operations))

    def _one_more(self, counts: Any, number: int) -> Any:
        return counts.at[number].add(1) if self.count else counts

    def _while(self, eqn: Any, operands: list[Any], number: int) -> list[Any]:
        test, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        split = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        test_consts, rest = operands[: split[0]], operands[split[0] :]
        body_consts, carry = rest[: split[1]], rest[split[1] :]
        within = number + 1 + _number_of_loops(test.jaxpr)

        def unfinished(state: Any) -> jax.Array:
            return _Evaluation(count=False).run(test, [*test_consts, *state[1]], number + 1)[0]

        # The body is traced while the loop is: it must not see the counts outside.
        def again(state: Any) -> Any:
            before, old = state
            step = partial(self.run, body, first=within)
            counts = self._one_more(before, number)
            counts, new = self._counting(lambda old: step([*body_consts, *old]), counts, old)
            counts = self._note_program(number, before, counts)
            if test.out_avals[0].ndim:  # one for each lane: lanes that are done stay as they are
                going = unfinished(state)
                new = [
                    jnp.where(going.reshape(going.shape + (1,) * (x.ndim - going.ndim)), x, y)
                    for x, y in zip(new, old, strict=True)
                ]
            return counts, new

        with jax.named_scope(f"loop{number}_"):
            self.counts, results = jax.lax.while_loop(
                lambda state: jnp.any(unfinished(state)), again, (self.counts, carry)
            )
        return results

    def _scan(self, eqn: Any, operands: list[Any], number: int) -> list[Any]:
        body, params = eqn.params["jaxpr"], eqn.params
        consts = operands[: params["num_consts"]]
        rest = operands[params["num_consts"] :]
        carry, given = rest[: params["num_carry"]], rest[params["num_carry"] :]

        def step(state: Any, one: Any) -> Any:
            counts, old = state
            counts = self._one_more(counts, number)
            counts, results = self._counting(
                lambda old: self.run(body, [*consts, *old, *one], number + 1), counts, old
            )
            return (counts, results[: len(old)]), results[len(old) :]

        with jax.named_scope(f"loop{number}_"):
            (self.counts, carried), stacked = jax.lax.scan(
                step,
                (self.counts, carry),
                given,
                length=params["length"],
                reverse=params["reverse"],
                unroll=params["unroll"],
            )
        return [*carried, *stacked]

    def _cond(self, eqn: Any, operands: list[Any], number: int) -> list[Any]:
        index, *arguments = operands
        branches = []
        for branch in eqn.params["branches"]:
            run = partial(self.run, branch, first=number)
            branches.append(lambda counts, values, run=run: self._counting(run, counts, values))
            number += _number_of_loops(branch.jaxpr)
        self.counts, results = jax.lax.switch(index, branches, self.counts, arguments)
        return results

    def _call(self, eqn: Any, operands: list[Any], number: int) -> list[Any]:
        inner = next(eqn.params[name] for name in _NESTED if name in eqn.params)
        return self._evaluate(
            getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands, number
        )
