"""The flow that extends the stored price history: AWS returns only 90 days, and a fit needs more, reproducibly."""

from prefect import flow

from proteus_spot.tasks.market.ingest import IngestRequest, fetch_prices, markets_of_interest, observe_predictors
from proteus_spot.tasks.run_labels import label_run


@flow(name="ingest-prices", validate_parameters=True)
async def ingest_prices(request: IngestRequest | None = None) -> int:
    """Fetch and store new prices of the markets of open jobs (or of `request`); return the number of new rows.

    The ages of the kept eviction predictors are logged, and end the run's name.
    """
    wanted = request or IngestRequest()
    new = fetch_prices(markets_of_interest(wanted), wanted.days)
    ages = observe_predictors()
    label_run("; ".join([f"{new} new prices", *ages]))
    return new
