"""Large sweeps: policies on boards of many configurations, with results on disk."""

from jaxlake.sweeps.driver import Progress as Progress
from jaxlake.sweeps.driver import run as run
from jaxlake.sweeps.heat_maps import plot as plot
from jaxlake.sweeps.knobs import SweepError as SweepError
from jaxlake.sweeps.results import read as read
from jaxlake.sweeps.spec import SweepSpec as SweepSpec
from jaxlake.sweeps.spec import load_spec as load_spec
