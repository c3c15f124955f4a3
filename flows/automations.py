"""Automation of the Prefect server that marks a run as crashed when its heartbeats stop.

``python -m flows.automations`` registers it on the server at PREFECT_API_URL, once after `prefect deploy --all`; run
again, it updates the registered one.

A worker reports a killed flow process. When the machine dies, the worker dies with it, and the run would stay "Running"
for ever; a live run sends heartbeats (prefect.yaml sets how often), so silence identifies a dead one. Nothing in
Proteus waits for a dead run: the automation is for the UI, and for Retry, which accepts only ended runs.
"""

import sys
from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.settings import get_current_settings

from infra.errors import InputError, ProteusError

NAME = "proteus: crash silent runs"
#: Seconds between heartbeats of a run, as set in prefect.yaml for every deployment; Prefect's minimum.
HEARTBEAT_S = 30
#: Seconds of silence after which a run counts as dead: three missed heartbeats.
SILENCE_S = 3 * HEARTBEAT_S
_HEARTBEAT = "prefect.flow-run.heartbeat"
#: Events that end the wait for the next heartbeat. Not every event of a run: "Running" can arrive after the first
#: heartbeat, and would count as a sign of life of a run that died in between.
_ENDS = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled", "Suspended")


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


def register(automation: AutomationCore) -> str:
    """Create the automation, or update the one of its name; return "created" or "updated".

    Duplicates of the name (registered at the same moment) are deleted.

    Raises
    ------
    InputError
        If PREFECT_API_URL is not set.
    """
    if get_current_settings().api.url is None:
        raise InputError("PREFECT_API_URL: is not set; name the server, as in http://127.0.0.1:4200/api")
    with get_client(sync_client=True) as client:
        registered = client.read_automations_by_name(automation.name)
        if not registered:
            client.create_automation(automation)
            return "created"
        first, *duplicates = sorted(registered, key=lambda found: str(found.id))
        for duplicate in duplicates:
            client.delete_automation(duplicate.id)
        client.update_automation(first.id, automation)
        return "updated"


def main() -> int:
    """Register the automation; return the exit code."""
    try:
        print(f"{NAME}: {register(silent_runs())}")
    except ProteusError as error:
        print(f"flows.automations: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
