"""The command line as a whole: help, invalid arguments and imports."""

import re
import subprocess
import sys

import pytest

COMMANDS = (
    *("run", "study", "engineer", "designbench", "evaluate", "report", "audit"),
    *("solve", "check", "render", "doctor", "generate", "feasibility", "completion", "dataset"),
    "sweep",
)


def test_help_names_every_command(cli):
    status, out, _ = cli("--help")
    assert status == 0
    assert re.findall(r"^    (\w+)\s+\w", out, flags=re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["sail"], ["solve"], ["evaluate", "c.yaml"], ["generate", "--size", "x"]),
        *(["report"], ["run", "c.yaml", "--stop-after", "-1"]),
    ],
)
def test_invalid_arguments_exit_with_status_2(arguments, cli):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert "usage: jaxlake" in err


def test_help_loads_no_jax():
    program = "import sys; from jaxlake.command_line.entry import main\ntry: main(['--help'])\n"
    program += "finally: assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)


@pytest.mark.parametrize(("module", "in_extra"), [("vllm.core", True), ("training.nothing", False)])
def test_missing_extra_is_named(module, in_extra, cli, monkeypatch):
    def run(args):
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr("training.commands.report.run", run)
    if in_extra:
        status, _, err = cli("report", "somewhere")
        assert status == 2
        assert "`jaxlake report` needs the package 'vllm'" in err
        assert "pip install 'jaxlake[vllm]'" in err
    else:
        with pytest.raises(ModuleNotFoundError):
            cli("report", "somewhere")


def test_closed_standard_output_is_rejected(cli, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    status, _, err = cli("solve", "file")
    assert status == 2
    assert err == "jaxlake: error: standard output is closed; /dev/null discards it\n"
