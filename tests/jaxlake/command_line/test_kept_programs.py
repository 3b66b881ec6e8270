"""Compiled programs that later processes load from disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.command_line.kept_programs import keep_program

ARGUMENT = {"a": np.arange(4, dtype=np.int32), "b": np.float32(2)}
EXPECTED = (np.array([2, 3, 4, 5], np.float32), np.int32(6))


@pytest.fixture
def folder(tmp_path):
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def traces():
    return []


@pytest.fixture
def program(traces):
    """What a new process would make: a function that JAX has not seen."""

    def make(name="add 1"):
        def function(argument):
            traces.append(name)
            return argument["a"] + argument["b"], jnp.sum(argument["a"])

        return keep_program(name, function, like=(0, 0))

    return make


def check(results):
    jax.tree.map(np.testing.assert_array_equal, results, EXPECTED)


def test_a_later_process_traces_nothing_and_gives_the_same(folder, program, traces):
    check(program()(ARGUMENT))
    assert len(list(folder.glob("add-*.program"))) == len(traces) == 1
    again = program()
    for _ in range(2):
        check(again(ARGUMENT))
    assert len(traces) == 1


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_a_damaged_program_is_compiled_and_written_anew(folder, program, traces, content):
    check(program()(ARGUMENT))
    (file,) = folder.glob("*.program")
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    for traced in (2, 2):
        check(program()(ARGUMENT))
        assert len(traces) == traced


def test_other_names_shapes_types_and_settings_have_programs_of_their_own(
    folder, program, traces, monkeypatch
):
    from jaxlake.command_line import kept_programs

    program()(ARGUMENT)
    program("add 2")(ARGUMENT)
    program()({**ARGUMENT, "a": np.arange(5, dtype=np.int32)})
    program()({**ARGUMENT, "a": np.arange(4, dtype=np.int16)})
    monkeypatch.setenv("XLA_FLAGS", "")
    kept_programs._circumstances.cache_clear()
    program()(ARGUMENT)
    kept_programs._circumstances.cache_clear()
    assert len(traces) == len(list(folder.glob("*.program"))) == 5


def test_nothing_is_kept_without_a_folder(folder, program, traces):
    jax.config.update("jax_compilation_cache_dir", None)
    for traced in (1, 2):
        check(program()(ARGUMENT))
        assert len(traces) == traced
    assert not list(folder.iterdir())


def test_a_full_disk_is_no_error(folder, program, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr("jaxlake.command_line.kept_programs.write_bytes_whole", fail)
    check(program()(ARGUMENT))
