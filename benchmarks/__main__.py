"""``python -m benchmarks``: the verb `proteus bench`."""

import sys

from flows.cli.main import cli

cli.main(["bench", *sys.argv[1:]], prog_name="proteus")
