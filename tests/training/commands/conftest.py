"""The command line as tests call it."""

from tests.commands import cli as cli
from tests.commands import write as write
