"""``python -m proteus_spot.benchmarks``: the verb `proteus bench`."""

import sys

from proteus_spot.flows.cli.main import cli

cli.main(["bench", *sys.argv[1:]], prog_name="proteus")
