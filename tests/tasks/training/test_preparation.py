"""What is refused before anything is bought; when ticks are due; notices that can be read."""

import pytest

from proteus_spot.bidding.market.model import LaunchRequest, Market
from proteus_spot.bidding.market.spot_market import AccessRefused, BadRequest, LaunchRefused, MarketUnreachable
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.eviction_notices import EvictionNotice, seen_notices
from proteus_spot.tasks.market.purchases.dry_run import MOST_TRIED, markets_to_try
from proteus_spot.tasks.market.purchases.requests import node_threads
from proteus_spot.tasks.market.tick import is_overtaken, next_hour_end_s, next_tick_s
from proteus_spot.tasks.reports.job_snapshot import Snapshot
from proteus_spot.tasks.training.preparation import check, prepare_data
from tests.support.task_runtime import BEGIN_S, MARKET, OTHER, TaskRuntime, plain, spec


def test_a_good_job_is_let_through_and_nothing_is_bought_or_written(here: TaskRuntime) -> None:
    plain(check)(spec())
    assert here.store.jobs.list_jobs() == []
    assert here.market.log() == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"app": "svm"},
            "job job: training.app 'svm': is not known; use one of bgd, kmeans, lda, mf, mlr, or module:Class",
        ),
        ({"data": "mnist"}, "job job: training.data 'mnist': unknown; known are digits, "),
        (
            {"max_partitions_per_node": 2},
            "job job: training.max_partitions_per_node: mlr needs all of its partitions; leave it out, or train bgd",
        ),
        (
            {"app": "bgd", "passes": 2},
            "job job: training.passes: bgd does not say what a pass is; give clocks instead",
        ),
        ({"code": "a.py"}, "job job: training.code a.py: app mlr is built in and takes no code"),
    ],
)
def test_a_job_that_cannot_run_is_refused_by_name(here: TaskRuntime, changes: dict[str, object], says: str) -> None:
    good = spec()
    with pytest.raises(InputError, match=says):
        plain(check)(good.model_copy(update={"training": good.training.model_copy(update=changes)}))
    assert here.store.jobs.list_jobs() == []


UNAUTHORIZED = (
    "You are not authorized to perform this operation. User: arn:aws:iam::111111111111:user/me is not authorized to "
    "perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:111111111111:instance/* because no identity-based "
    "policy allows the ec2:RunInstances action. Encoded authorization failure message: abcdef"
)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            AccessRefused("UnauthorizedOperation", UNAUTHORIZED),
            r"^c4\.large/us-east-1a could not be bought on demand: UnauthorizedOperation: the credentials lack ec2:Run",
        ),
        (AccessRefused("RequestExpired", "Request has expired."), "set the clock of this machine$"),
        (AccessRefused("ExpiredToken", "expired"), "ExpiredToken: expired; renew or fix the credentials"),
        (BadRequest("InvalidAMIID.NotFound", "no image ami-1"), "no image ami-1; fix the setting"),
    ],
)
def test_a_dry_run_says_in_one_line_what_is_missing_before_anything_is_written(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def refuse(_request: LaunchRequest) -> None:
        raise error

    monkeypatch.setattr(here.market, "dry_run", refuse)
    with pytest.raises(InputError, match=says) as refused:
        plain(check)(spec())
    assert "\n" not in str(refused.value)
    assert "Encoded" not in str(refused.value)
    assert here.store.jobs.list_jobs() == []


def test_a_dry_run_names_the_zones_in_which_nothing_can_be_bought(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: LaunchRequest) -> None:
        if request.market.zone == OTHER.zone:
            raise BadRequest("InvalidSubnetID.NotFound", "no subnet in that zone")

    monkeypatch.setattr(here.market, "dry_run", refuse)
    says = f"^{OTHER} could not be bought as a spot machine: InvalidSubnetID.NotFound: no subnet in that zone; fix the"
    with pytest.raises(InputError, match=says):
        plain(check)(spec(markets=[str(MARKET), str(OTHER)]))


def test_a_dry_run_tries_each_zone_and_then_each_type_a_few_in_all() -> None:
    markets = [Market(kind, zone) for zone in ("a", "b") for kind in ("one", "two", "three")]
    assert markets_to_try(markets) == [Market("one", "a"), Market("two", "b"), Market("three", "a")]
    assert len(markets_to_try([Market(f"type-{n}", f"zone-{n % 3}") for n in range(20)])) == MOST_TRIED


def test_the_dry_run_tries_a_machine_of_each_tier(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[LaunchRequest] = []
    monkeypatch.setattr(here.market, "dry_run", tried.append)
    plain(check)(spec(markets=[str(MARKET), str(OTHER)]))
    pairs = [(MARKET, True), (MARKET, False), (OTHER, False)]
    assert [(request.market, request.bid_micros is None) for request in tried] == pairs
    tried.clear()
    plain(check)(spec(max_vcpus=0))
    assert [request.bid_micros is None for request in tried] == [True]


@pytest.mark.parametrize(
    "error",
    [MarketUnreachable("RequestLimitExceeded", "slow"), LaunchRefused("VcpuLimitExceeded", "no more")],
)
def test_what_may_pass_is_no_reason_to_refuse_a_job(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_request: LaunchRequest) -> None:
        raise error

    monkeypatch.setattr(here.market, "dry_run", refuse)
    plain(check)(spec())


def test_credentials_of_another_account_are_refused_before_anything_is_written(here: TaskRuntime) -> None:
    here.store.owner.pin("222222222222", "us-east-1")
    with pytest.raises(InputError, match=r"^AWS account 000000000000: the machines of this state database are in"):
        plain(check)(spec())
    assert here.store.jobs.list_jobs() == []


def test_a_type_that_is_not_for_sale_is_refused(here: TaskRuntime) -> None:
    with pytest.raises(InputError, match=r"instance type z9\.huge is not in the catalogue; name another"):
        plain(check)(spec(markets=["z9.huge/us-east-1a"]))
    assert here.store.jobs.list_jobs() == []


def test_parameters_that_a_built_in_application_does_not_take_are_refused(here: TaskRuntime) -> None:
    good = spec()
    job = good.model_copy(update={"training": good.training.model_copy(update={"app_params": {"depth": 3}})})
    says = r"^job job: training\.app_params: app 'mlr' does not take these app_params: .*'depth'"
    with pytest.raises(InputError, match=says):
        plain(check)(job)
    assert here.store.jobs.list_jobs() == []
    plain(record_job)(job)
    plain(check)(job)  # it runs already, and its controller has said what it thinks


def test_parameters_that_do_not_fit_the_data_are_refused_before_anything_is_written(here: TaskRuntime) -> None:
    good = spec()
    training = {"app": "kmeans", "app_params": {"k": 100_000}, "data": "digits"}
    job = good.model_copy(update={"training": good.training.model_copy(update=training)})
    plain(check)(job)  # by itself there is nothing wrong with it
    with pytest.raises(InputError, match=r"^job job: training\.app_params: .*k is 100000, and there are 1437 examples"):
        plain(prepare_data)(job)
    assert here.runtime.blobs.list("jobs") == []


def test_a_type_without_a_price_of_the_day_is_refused(here: TaskRuntime) -> None:
    here.clock.at_s = 946684800.0  # long before it was sold
    with pytest.raises(
        InputError, match=r"instance type c4\.large has no on-demand price on 2000-01-01 in the catalogue; name another"
    ):
        plain(check)(spec())


def test_ticks_stand_on_whole_multiples_of_their_period(here: TaskRuntime) -> None:
    period_s = here.runtime.settings.tick_s
    assert BEGIN_S % period_s == 0
    for at_s, due_s in ((BEGIN_S, period_s), (BEGIN_S + 1, period_s), (BEGIN_S + period_s - 0.5, period_s)):
        here.clock.at_s = at_s
        assert next_tick_s() == BEGIN_S + due_s


def test_a_run_that_nobody_scheduled_is_never_stale(here: TaskRuntime) -> None:
    assert not is_overtaken()


def test_the_next_hour_end_is_that_of_the_earliest_allocation(here: TaskRuntime) -> None:
    assert next_hour_end_s("job") is None
    here.begin(spec())
    here.clock.at_s += 600
    here.tick(spec())
    lead_s = here.runtime.settings.renewal_lead_s
    assert next_hour_end_s("job") == BEGIN_S + 3600 - lead_s
    here.clock.at_s = BEGIN_S + 3600 - lead_s
    assert next_hour_end_s("job") == here.clock.at_s + 1, "time goes on, also where a decision is due already"


def test_no_notices_of_a_job_that_is_not_there_or_has_no_controller(here: TaskRuntime) -> None:
    assert seen_notices("job") == []
    here.begin(spec())
    assert seen_notices("job") == []


def test_a_notice_is_checked() -> None:
    good = {"job_id": "job", "allocation_id": "job-buy-0", "takes_at_s": 5, "more": "ignored"}
    assert EvictionNotice.model_validate(good).takes_at_s == 5
    for bad in ({"job_id": "Job!"}, {"allocation_id": ""}, {"takes_at_s": "soon"}, {"patience_s": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            EvictionNotice.model_validate(good | bad)


def test_a_machine_runs_as_many_micro_tasks_as_it_has_vcpus_where_it_is_real(here: TaskRuntime) -> None:
    assert node_threads(MARKET, 1.0) == node_threads(OTHER, 1.0) == 2
    assert node_threads(MARKET, 60.0) == 1


def test_a_snapshot_is_a_value() -> None:
    shot = Snapshot("job", "running", 1.0, 2, None, 1, 1, (), 0, 0, 0, 0, 0, "")
    with pytest.raises(AttributeError):
        shot.clock = 3  # type: ignore[misc]


def test_on_ec2_itself_the_bill_of_the_bid_era_is_refused(here: TaskRuntime) -> None:
    plain(check)(spec())
    for url in (None, "https://ec2.us-east-1.amazonaws.com"):
        here.use(ec2_endpoint_url=url)
        with pytest.raises(InputError, match=r"transient\.billing hourly-refund is how EC2 charged until 2017"):
            plain(check)(spec())
        plain(check)(spec(billing="per-second-first-hour-free"))


def test_a_budget_and_a_deadline_that_cannot_be_kept_are_refused(here: TaskRuntime) -> None:
    with pytest.raises(InputError, match=r"budget_usd \$0\.1040: the reliable tier alone, 1 x c4\.large .* give more"):
        plain(check)(spec().model_copy(update={"budget_usd": 0.104}))
    plain(check)(spec().model_copy(update={"budget_usd": 0.105}))
    with pytest.raises(InputError, match=r"deadline 2016-06-01T00:00:00Z has passed by the market's clock"):
        plain(check)(spec().model_copy(update={"deadline": "2016-06-01T00:00:00Z"}))
    plain(check)(spec().model_copy(update={"deadline": "1m"}))
    assert here.store.jobs.list_jobs() == []
