"""The commands of `jaxlake`, one module each.

A command is a module with `add_parser(subparsers)`, which must stay cheap since every `--help`
calls it, and `run(args) -> int`, which imports what is heavy and returns the exit status.
"""

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
