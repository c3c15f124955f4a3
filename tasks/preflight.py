"""What can be known to be wrong before anything is bought or written."""

from bidding.model import Market
from bidding.policies import policy
from infra.errors import InputError
from tasks.applications import check_parameters
from tasks.code import check_code
from tasks.eviction_tables import job_table
from tasks.jobs import is_known, priced
from tasks.spec import JobSpec
from tasks.world import touch, world


@touch("check", market=True)
def check(spec: JobSpec) -> None:
    """Refuse a job that cannot run as it is written.

    Raises
    ------
    InputError
        One line that names the field and the mend.
    """
    here = world()
    try:
        policy(spec.transient.policy)
        markets = [Market.parse(text) for text in spec.transient.markets]
    except ValueError as error:
        raise InputError(f"job {spec.job_id}: {error}") from None
    if not is_known(spec.job_id):  # what runs already goes on with the code that it began with
        check_code(spec)
        check_parameters(f"job {spec.job_id}: training.app_params", spec.training)
        job_table(spec)
    reliable = Market(spec.reliable.instance_type, spec.reliable.zone)
    priced([*markets, reliable], here.clock.now_s())
    here.market.describe([("proteus:job", spec.job_id)])  # the market answers, and lets us in
