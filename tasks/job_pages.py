"""The page of a job in the Prefect UI: one artifact, made with the job's first run and changed in place ever after.

Its address therefore stays. A later run of the job is given a link to it.
"""

from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.client.schemas.objects import ArtifactCollection
from prefect.settings import PREFECT_UI_URL

_MARKDOWN = "markdown"


def page_key(job_id: str) -> str:
    """Return the key of the artifact that is a job's page."""
    return f"job-{job_id}"


def page_url(artifact_id: UUID) -> str:
    """Return the address of a page in the Prefect UI; empty if the UI's address is not known."""
    ui_url = PREFECT_UI_URL.value()
    return f"{ui_url.rstrip('/')}/artifacts/artifact/{artifact_id}" if ui_url else ""


def open_page(job_id: str, run_id: UUID) -> str:
    """Make a job's page, listed with a flow run, or find it; return its address."""
    with get_client(sync_client=True) as client:
        page = _find(client, job_id)
        if page is None:
            return page_url(_create(client, job_id, "It was submitted; its run has not begun.", "submitted", run_id))
        url = page_url(page.latest_id)
        if page.flow_run_id != run_id and url:
            link = ArtifactCreate(type=_MARKDOWN, data=f"[The page of job {job_id}]({url})", flow_run_id=run_id)
            client.create_artifact(link)
        return url


def write_page(job_id: str, markdown: str, description: str, run_id: UUID | None = None) -> None:
    """Set the content of a job's page; a page that has to be made is listed with the flow run `run_id`."""
    with get_client(sync_client=True) as client:
        page = _find(client, job_id)
        if page is None:
            _create(client, job_id, markdown, description, run_id)
        else:
            client.update_artifact(page.latest_id, ArtifactUpdate(data=markdown, description=description))


def _find(client: SyncPrefectClient, job_id: str) -> ArtifactCollection | None:
    key = ArtifactCollectionFilterKey(any_=[page_key(job_id)])
    found = client.read_latest_artifacts(artifact_filter=ArtifactCollectionFilter(key=key), limit=1)
    return found[0] if found else None


def _create(client: SyncPrefectClient, job_id: str, markdown: str, state: str, run_id: UUID | None) -> UUID:
    artifact = ArtifactCreate(
        key=page_key(job_id), type=_MARKDOWN, data=markdown, description=state, flow_run_id=run_id
    )
    return client.create_artifact(artifact).id
