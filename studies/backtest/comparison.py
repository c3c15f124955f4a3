"""A backtest from its request to its result: open inputs, run cells, gather figures."""

from typing import Any

from proteus_spot.infra.clock import SystemClock
from proteus_spot.studies.backtest.backtest_inputs import at_interval, open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import CellResult, all_cores, plan, run_cells
from proteus_spot.studies.backtest.reliable_counts import Numbers, as_records, run_numbers, tiered
from proteus_spot.studies.backtest.result_tables import as_json
from proteus_spot.studies.market_data.trace_files import Report


class Comparison:
    """The schemes of a backtest, opened and planned; `run` computes them.

    Parameters
    ----------
    threads : None: all cores.
    report : receives the files being read, and the number of job-hours done.

    Attributes
    ----------
    field, spec : the inputs and the request, with the checkpoint interval filled in.
    runs : the cells that are done.
    numbers : the schemes with each number of reliable machines, if numbers are requested.
    result : the object that ``--json`` writes; empty before `run`.

    Raises
    ------
    InputError
        If a file cannot be used, a window or a zone is invalid, or nothing can be compared or weighed.

    Notes
    -----
    It is a plain class, because Prefect would look into a dataclass for states, prices and all.
    """

    def __init__(self, spec: BacktestSpec, *, threads: int | None = None, report: Report) -> None:
        self._clock = SystemClock()
        self._began_s = self._clock.now_s()
        tiered(spec)  # raises what cannot be weighed, before anything is read
        self.field, self.spec = at_interval(open_inputs(spec, report), spec)
        self.planned = plan(self.field, self.spec)
        self.runs: list[CellResult] = []
        self.numbers: list[Numbers] = []
        self.result: dict[str, Any] = {}
        self._threads = threads or all_cores()
        self._report = report

    def run(self) -> None:
        """Run every cell and gather the figures."""
        for ran in run_cells(self.planned, threads=self._threads, report=self._report):
            self.runs.append(ran)
        self.numbers = run_numbers(self.field, self.spec, self.runs, threads=self._threads, report=self._report)
        self.result = as_json(self.field, self.spec, self.runs, self._clock.now_s() - self._began_s)
        if self.spec.reliable_counts:
            self.result["reliable"] = as_records(self.numbers)
