"""Automations of the Prefect server: silent runs are marked as crashed, and users are notified of what matters.

``python -m proteus_spot.flows.automations [--notify TYPE/NAME]`` registers them on the server at PREFECT_API_URL, once
after `prefect deploy --all`; run again, it updates the registered ones. `TYPE/NAME` names a notification block of that
server, as in ``slack-webhook/ops``. Without one, what happened shows in the event feed of the UI alone, as the
automation that fired.

A worker reports a killed flow process. When the machine dies, the worker dies with it, and the run would stay "Running"
forever; a live run sends heartbeats (prefect.yaml sets how often), so silence identifies a dead one. Nothing in
Proteus waits for a dead run: that automation is for the UI, and for Retry, which accepts only ended runs.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ActionTypes, ChangeFlowRunState, DoNothing, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings

from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.tasks.event_feed import RESOURCE, TICKS, JobEvent

NAME = "proteus: crash silent runs"
#: Seconds between heartbeats of a run, as set in prefect.yaml for every deployment; Prefect's minimum.
HEARTBEAT_S = 30
#: Seconds of silence after which a run counts as dead: three missed heartbeats.
SILENCE_S = 3 * HEARTBEAT_S
#: Seconds without a tick that are reported: three ticks.
NO_TICK_S = 360
_HEARTBEAT = "prefect.flow-run.heartbeat"
#: Events that end the wait for the next heartbeat. Not every event of a run: "Running" can arrive after the first
#: heartbeat, and would count as a sign of life of a run that died in between.
_ENDS = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled", "Suspended")
_ABOUT_JOB = "{{ event.resource.name }}: {{ event.payload | tojson }}"


def silent_runs(silence_s: int = SILENCE_S) -> AutomationCore:
    """Return the automation that marks a run as crashed after `silence_s` seconds without a heartbeat."""
    return AutomationCore(
        name=NAME,
        description="A run whose process and worker died together reports nothing; its heartbeats stop.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *(f"prefect.flow-run.{name}" for name in _ENDS)},
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=silence_s),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"no heartbeat for {silence_s} s: its process was lost; run it again, and it attaches",
            )
        ],
    )


def notifications(block_id: UUID | None, no_tick_s: int = NO_TICK_S) -> list[AutomationCore]:
    """Return the automations that notify by a block of the server; without one they only show in the event feed.

    Parameters
    ----------
    no_tick_s : seconds without a tick after which that is reported; counting begins when this is registered.
    """
    return [
        _notified("job done", {JobEvent.FINISHED, JobEvent.STOPPED}, "A job has ended; its model is saved.", block_id),
        _notified("job failed", {JobEvent.FAILED}, "A job has failed; `proteus jobs` says why.", block_id),
        _notified("budget at 80 %", {JobEvent.BUDGET}, "A job has spent 80 % of its budget.", block_id),
        _notified("deadline at risk", {JobEvent.DEADLINE}, "On-demand machines must finish a job.", block_id),
        _notified(
            "launch failed", {JobEvent.LAUNCH}, "A right, a quota or a setting lets nothing be bought.", block_id
        ),
        _notified("orphan found", {JobEvent.ORPHAN}, "Machines were found that no job needs, and ended.", block_id),
        AutomationCore(
            name="proteus: no tick",
            description="No tick has decided for long: server, worker or database is away. Leases end the machines.",
            trigger=EventTrigger(
                posture=Posture.Proactive,
                after={JobEvent.TICKED},
                expect={JobEvent.TICKED},
                match=ResourceSpecification({"prefect.resource.id": TICKS}),
                threshold=1,
                within=timedelta(seconds=no_tick_s),
            ),
            actions=[_notification("no tick", f"No tick has decided for {no_tick_s} s.", block_id)],
        ),
    ]


def _notified(subject: str, events: set[JobEvent], description: str, block_id: UUID | None) -> AutomationCore:
    return AutomationCore(
        name=f"proteus: {subject}",
        description=description,
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect=set(events),
            match=ResourceSpecification({"prefect.resource.id": f"{RESOURCE}*"}),
            threshold=1,
            within=timedelta(0),
        ),
        actions=[_notification(subject, f"{description} {_ABOUT_JOB}", block_id)],
    )


def _notification(subject: str, body: str, block_id: UUID | None) -> ActionTypes:
    if block_id is None:
        return DoNothing()
    return SendNotification(block_document_id=block_id, subject=f"Proteus: {subject}", body=body)


def find_block(client: SyncPrefectClient, name: str) -> UUID:
    """Return the id of the notification block that ``TYPE/NAME`` names.

    Raises
    ------
    InputError
        If the server has none of that name.
    """
    kind, _, block = name.partition("/")
    try:
        return client.read_block_document_by_name(block, kind).id
    except ObjectNotFound:
        raise InputError(
            f"--notify {name}: the server has no such block; make one in the UI (Blocks), and name it TYPE/NAME, "
            "as in slack-webhook/ops"
        ) from None


def register(client: SyncPrefectClient, automation: AutomationCore) -> str:
    """Create the automation, or update the one of its name; return "created" or "updated".

    Duplicates of the name (registered at the same moment) are deleted.
    """
    registered = client.read_automations_by_name(automation.name)
    if not registered:
        client.create_automation(automation)
        return "created"
    first, *duplicates = sorted(registered, key=lambda found: str(found.id))
    for duplicate in duplicates:
        client.delete_automation(duplicate.id)
    client.update_automation(first.id, automation)
    return "updated"


def main(arguments: Sequence[str] | None = None) -> int:
    """Register the automations; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.flows.automations", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("--notify", metavar="TYPE/NAME", help="notification block of the server; default: none")
    options = parser.parse_args(arguments)
    try:
        if get_current_settings().api.url is None:
            raise InputError("PREFECT_API_URL: is not set; name the server, as in http://127.0.0.1:4200/api")
        with get_client(sync_client=True) as client:
            block_id = None if options.notify is None else find_block(client, options.notify)
            for automation in (silent_runs(), *notifications(block_id)):
                print(f"{automation.name}: {register(client, automation)}")
    except ProteusError as error:
        print(f"proteus_spot.flows.automations: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
