"""The flow of a backtest from the Prefect UI: costs of schemes on recorded prices, as a table and pictures.

The verb `proteus backtest` does the same on a terminal.
"""

from typing import Annotated, Any

from prefect import flow

from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.form_fields import GIVEN, NOT_GIVEN, required_in_form
from proteus_spot.tasks.backtest_artifacts import compare, publish_pictures, publish_table


@required_in_form
@flow(name="backtest", validate_parameters=True)
def backtest(spec: Annotated[BacktestSpec, GIVEN] = NOT_GIVEN) -> dict[str, Any]:
    """Compare schemes; return the result as ``proteus backtest --json`` writes it."""
    compared = compare(spec)
    publish_table(compared)
    publish_pictures(compared)
    return compared.result
