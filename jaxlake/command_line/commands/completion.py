"""`jaxlake completion`: print a script for shell completion of commands and options."""

import argparse

from jaxlake.command_line.arguments import describe

_HELP = """\
Print a completion script for your shell. With it, Tab completes commands, actions and options:

  bash   jaxlake completion bash > ~/.local/share/bash-completion/completions/jaxlake
  zsh    jaxlake completion zsh > "${fpath[1]}/_jaxlake"
  fish   jaxlake completion fish > ~/.config/fish/completions/jaxlake.fish

The command needs shtab: pip install 'jaxlake[completion]'.

exit status: 0 printed, 2 shtab is missing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="shell to generate the script for"
    )


def run(args: argparse.Namespace) -> int:
    """Print the completion script."""
    import shtab

    from jaxlake.command_line.entry import make_parser

    print(shtab.complete(make_parser(complete=True), args.shell))
    return 0
