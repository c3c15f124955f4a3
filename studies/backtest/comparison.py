"""A backtest from its request to its result: open inputs, run cells, cache finished ones, gather figures."""

from pathlib import Path
from typing import Any

from proteus_spot.infra.clock import SystemClock
from proteus_spot.studies.backtest.backtest_inputs import at_interval, open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.job_runs import CellResult, all_cores, kept_cells, plan, run_cells
from proteus_spot.studies.backtest.reliable_counts import Numbers, as_records, run_numbers, tiered
from proteus_spot.studies.backtest.result_tables import as_json
from proteus_spot.studies.market_data.trace_files import Report


class Comparison:
    """The schemes of a backtest, opened and planned; `run` computes them.

    Parameters
    ----------
    directory : cache of finished cells; None: `DEFAULT_DIRECTORY`, until all are done.
    threads : None: all cores.
    resume : reuse the cells that an earlier run has cached.
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

    def __init__(
        self,
        spec: BacktestSpec,
        *,
        directory: Path | None = None,
        threads: int | None = None,
        resume: bool,
        report: Report,
    ) -> None:
        self._clock = SystemClock()
        self._began_s = self._clock.now_s()
        tiered(spec)  # raises what cannot be weighed, before anything is read
        self.field, self.spec = at_interval(open_inputs(spec, report), spec)
        self.planned = plan(self.field, self.spec)
        self.runs: list[CellResult] = []
        self.numbers: list[Numbers] = []
        self.result: dict[str, Any] = {}
        self.kept = kept_cells(directory)
        self._directory = directory
        self._threads = threads or all_cores()
        self._resume = resume
        self._report = report

    def run(self) -> None:
        """Run every cell, cache each as soon as it is done, and gather the figures."""
        how: dict[str, Any] = {"threads": self._threads, "kept": self.kept, "resume": self._resume}
        for ran in run_cells(self.planned, **how, report=self._report):
            self.runs.append(ran)
        self.numbers = run_numbers(self.field, self.spec, self.runs, **how, report=self._report)
        self.result = as_json(self.field, self.spec, self.runs, self._clock.now_s() - self._began_s)
        if self.spec.reliable_counts:
            self.result["reliable"] = as_records(self.numbers)

    def forget(self) -> None:
        """Delete the cached cells once their figures are written, except in a directory that the user named."""
        if self._directory is None:
            self.kept.forget([ran.key for ran in (*self.runs, *(ran for each in self.numbers for ran in each.runs))])
