"""Two databases in one account: none finds, adopts or ends a machine of the other. Account and region stay."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import proteus_spot.tasks.task_runtime
from proteus_spot.bidding.engine.orders import client_token
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.runtime import forget_runtime, open_runtime
from proteus_spot.infra.state.identity import read_owner_files
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier, secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import send
from proteus_spot.tasks.market.reaping import orphans
from tests.support.account_market import AccountMarket
from tests.support.task_runtime import TaskRuntime, plain, spec

Use = Callable[[TaskRuntime], None]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TaskRuntime, TaskRuntime, Use]]:
    """Two head nodes with the same settings and a database each, in one account and market; the last: who acts."""
    nodes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        nodes.append(TaskRuntime(tmp_path / name, monkeypatch))
    alice, bob = nodes
    bob.market, bob.clock = alice.market, alice.clock
    for node in nodes:
        same = node.runtime.settings.model_copy(update={"database_url": "sqlite:////srv/proteus/state.db"})
        node.runtime = replace(node.runtime, settings=same, market=alice.market, clock=alice.clock)
    yield (
        alice,
        bob,
        lambda node: monkeypatch.setattr(proteus_spot.tasks.task_runtime, "open_runtime", lambda: node.runtime),
    )
    for node in nodes:
        node.close()


def test_the_reaper_of_one_head_node_leaves_the_machines_of_another_alone(
    two: tuple[TaskRuntime, TaskRuntime, Use], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, use = two
    monkeypatch.setattr("proteus_spot.infra.runtime.write_owner_file", lambda *about: None)
    assert alice.runtime.owner != bob.runtime.owner
    for node, job_id in ((alice, "alice-1"), (bob, "bob-1")):
        use(node)
        node.begin(spec(job_id))
        node.tick(spec(job_id))
    alice.clock.at_s += 600
    for node in (alice, bob):
        use(node)
        assert plain(orphans)() == {}
    assert len(alice.market.log()) == 6
    assert all(fact.alive for fact in alice.market.log())


def test_the_same_job_id_in_two_databases_is_two_jobs(
    two: tuple[TaskRuntime, TaskRuntime, Use], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, use = two
    monkeypatch.setattr("proteus_spot.infra.runtime.write_owner_file", lambda *about: None)
    job = spec("mf-1")
    books = {}
    for node in (alice, bob):
        use(node)
        node.begin(job)
        node.tick(job)
        books[node.runtime.owner] = {name for r in node.store.purchases.allocations("mf-1") for name in r.instance_ids}
        alice.clock.at_s += 60
    by_owner = {
        owner: {fact.instance_id for fact in alice.market.log() if fact.tags["proteus:owner"] == owner}
        for owner in books
    }
    assert books == by_owner
    assert [len(ids) for ids in books.values()] == [3, 3]
    assert len({fact.token for fact in alice.market.log()}) == 4
    use(bob)
    plain(close_job)(JobEngine("mf-1"), None, "bob gave up")
    plain(release_reliable_tier)(JobEngine("mf-1"))
    alive = {fact.instance_id for fact in alice.market.log() if fact.alive}
    assert books[alice.runtime.owner] <= alive
    assert not alice.store.jobs.job("mf-1").state.terminal


def test_client_tokens_are_short_and_differ_by_owner_and_order() -> None:
    orders = [f"{'j' * 40}-reliable-0-again-{number}" for number in range(99)]
    tokens = [client_token(owner, order) for owner in ("owner-1", "owner-2") for order in orders]
    assert len(set(tokens)) == len(tokens)
    assert all(token.isascii() and len(token) <= 64 for token in tokens)
    assert client_token("owner-1", orders[0]) == tokens[0], "the same in every process"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("account", r"^AWS account 111111111111: the machines of this state database are in account 000000000000; use"),
        ("region", r"^PROTEUS_REGION eu-west-1: the machines of this state database are in us-east-1; set that region"),
    ],
)
def test_another_account_or_region_is_refused_before_anything_is_bought_or_believed(
    here: TaskRuntime, change: str, says: str
) -> None:
    here.begin(spec())
    here.tick(spec())
    before = here.market.log()
    if change == "account":
        here.runtime = replace(here.runtime, market=AccountMarket(here.market, "111111111111"))
    else:
        elsewhere = here.runtime.settings.model_copy(update={"region": "eu-west-1"})
        here.runtime = replace(here.runtime, settings=elsewhere)
    for step in (
        lambda: plain(orphans)(),
        lambda: plain(release_reliable_tier)(JobEngine("job")),
        lambda: send(JobEngine("job"), "job-reliable-0", lambda intent: pytest.fail("no request may be made")),
    ):
        with pytest.raises(InputError, match=says):
            step()
    assert here.market.log() == before
    here.runtime = replace(
        here.runtime, market=here.market, settings=here.runtime.settings.model_copy(update={"region": "us-east-1"})
    )
    plain(secure_reliable_tier)(spec(), JobEngine("job"))
    assert here.market.log() == before


def test_the_account_is_asked_for_once_a_process(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    account_id = here.market.account_id
    monkeypatch.setattr(here.market, "account_id", lambda: asked.append(1) or account_id())
    here.begin(spec())
    for _ in range(3):
        here.tick(spec())
    assert len(asked) == 1


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The settings of a process whose database is in the directory that this returns."""
    for name, value in (("DATABASE_URL", f"sqlite:///{tmp_path}/state.db"), ("BLOB_URL", f"file://{tmp_path}/blobs")):
        monkeypatch.setenv(f"PROTEUS_{name}", value)
    forget_runtime()
    yield tmp_path
    forget_runtime()


def test_a_file_beside_the_database_names_the_owner_and_never_the_password(variables: Path) -> None:
    owner = open_runtime().owner
    (record,) = read_owner_files(variables / "owners")
    assert (record.owner, record.account, record.region) == (owner, None, None)
    assert record.database == f"sqlite:///{variables}/state.db"
    open_runtime().store.owner.pin("123456789012", "us-east-1")
    forget_runtime()
    assert open_runtime().owner == owner, "it is that of the database"
    (record,) = read_owner_files(variables / "owners")
    assert (record.owner, record.account, record.region) == (owner, "123456789012", "us-east-1")


def test_the_owner_of_the_settings_is_that_of_a_new_database_and_must_agree_with_an_old_one(
    variables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTEUS_OWNER", "team-a")
    assert open_runtime().owner == "team-a"
    forget_runtime()
    monkeypatch.setenv("PROTEUS_OWNER", "team-b")
    with pytest.raises(InputError, match=r"^PROTEUS_OWNER team-b: the machines of this state database belong to team-"):
        open_runtime()
    monkeypatch.delenv("PROTEUS_OWNER")
    forget_runtime()
    assert open_runtime().owner == "team-a"
