"""`jaxlake completion`: shells complete words with the generated script."""

import subprocess

import pytest

PROGRAM = """
source "$1"
COMP_WORDS=(jaxlake "${@:2}")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_shtab_jaxlake
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["so"], "solve"),
        (["dataset", "ben"], "benchmark"),
        (["run", "--dry"], "--dry-run"),
        (["study", "--cluster", "slu"], "slurm"),
    ],
)
def test_bash_completes_commands_actions_options_and_choices(words, expected, cli, tmp_path):
    script = tmp_path / "completion"
    status, out, _ = cli("completion", "bash")
    assert status == 0
    script.write_text(out)
    process = subprocess.run(
        ["bash", "-c", PROGRAM, "bash", script, *words], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == [expected]
