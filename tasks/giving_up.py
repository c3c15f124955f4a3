"""A run that ends before its time: its machines are let go and its books closed, without a Prefect API to tell it to."""

from inspect import unwrap

from bidding.money import usd
from bidding.reconcile import by_token, reconcile
from infra.records import JobState
from tasks.desk import enter, open_desk
from tasks.jobs import close_job
from tasks.ledger import book_ledger
from tasks.machines import job_tag, tiers_of
from tasks.world import world


def give_up(job_id: str, why: str, command: str) -> str:
    """End every machine of the job, book what they cost, write down that it failed; return that, and what can be done.

    A job whose work is done stays finished.

    Parameters
    ----------
    command : what runs the job again.
    """
    here = world()
    if all(job.job_id != job_id for job in here.store.jobs()):
        return f"nothing was bought; to begin anew: {command}"
    tag = job_tag(job_id)
    here.market.terminate([fact.instance_id for fact in here.market.describe([tag]) if fact.alive])
    facts = here.market.describe([tag])
    if open_desk(here, job_id)[0].job_id is not None:
        groups = by_token(facts)
        enter(here, job_id, lambda engine: reconcile(engine, groups, tiers_of(facts), here.now_s()), dict(groups))
    if not here.store.job(job_id).state.terminal:
        unwrap(close_job)(job_id, None, why)
    unwrap(book_ledger)(job_id)
    spent = usd(here.store.spent(job_id))
    if here.store.job(job_id).state is JobState.FAILED:
        return f"job {job_id} is given up ({spent} spent) and leaves nothing running; to train anew give another --job"
    return f"job {job_id} is trained ({spent} spent) and leaves nothing running; to see its figures: {command}"
