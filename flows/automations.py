"""What the Prefect server does by itself: mark a run as crashed when its process has died without a word.

``python -m flows.automations`` registers it on the server that PREFECT_API_URL names, once after `prefect deploy --all`;
again, it brings what is there up to date.

A killed flow process is told by its worker. When the machine dies, the worker dies with it, and the run would stay
"Running" for ever; a run that lives sends a heartbeat (prefect.yaml sets how often), so silence tells the dead.
Nothing of ours waits for a dead run: this is for who looks at the UI, and for Retry, which takes ended runs alone.
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
#: Seconds between two heartbeats of a run, as prefect.yaml sets it for every deployment; Prefect's least.
HEARTBEAT_S = 30
#: Three heartbeats missed.
SILENCE_S = 3 * HEARTBEAT_S
_HEARTBEAT = "prefect.flow-run.heartbeat"
#: What ends the waiting for the next heartbeat. Not every event of a run: "Running" can arrive after the first
#: heartbeat, and would pass for a sign of life of a run that died in between.
_ENDS = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled", "Suspended")


def silent_runs(silence_s: int = SILENCE_S) -> AutomationCore:
    """Return the automation that marks a run as crashed after `silence_s` seconds without a heartbeat."""
    return AutomationCore(
        name=NAME,
        description="A run whose process and worker died together cannot say so; its heartbeats stop.",
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
                message=f"no heartbeat for {silence_s} s: its process is gone; run it again, and it attaches",
            )
        ],
    )


def register(automation: AutomationCore) -> str:
    """Create the automation, or bring the one of its name up to date; return which was done.

    More than one of the name (two registered at the same moment) become one.

    Raises
    ------
    InputError
        If no server is named.
    """
    if get_current_settings().api.url is None:
        raise InputError("PREFECT_API_URL: is not set; name the server, as in http://127.0.0.1:4200/api")
    with get_client(sync_client=True) as client:
        there = client.read_automations_by_name(automation.name)
        if not there:
            client.create_automation(automation)
            return "created"
        kept, *twins = sorted(there, key=lambda one: str(one.id))
        for twin in twins:
            client.delete_automation(twin.id)
        client.update_automation(kept.id, automation)
        return "updated"


def main() -> int:
    """Register everything; return the exit code."""
    try:
        print(f"{NAME}: {register(silent_runs())}")
    except ProteusError as error:
        print(f"flows.automations: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
