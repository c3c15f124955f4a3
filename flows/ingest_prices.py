"""Keep the price history: AWS gives back 90 days, a fit wants more and the same ones tomorrow."""

from prefect import flow

from tasks.market.ingest import IngestRequest, fetch_prices, markets_of_interest


@flow(name="ingest-prices", validate_parameters=True)
async def ingest_prices(request: IngestRequest | None = None) -> int:
    """Fetch what is new in the markets of the open jobs (or of `request`) and keep it; return how many rows were new."""
    wanted = request or IngestRequest()
    return fetch_prices(markets_of_interest(wanted), wanted.days)
