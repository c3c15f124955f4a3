"""The engine's configuration of a job, from its description and the summary of its data."""

from collections.abc import Mapping
from typing import Any

from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.psengine.config import JobConfig
from proteus_spot.studies.job_spec import Training


def _scales(training: Training, data: DataSummary) -> Mapping[str, Any]:
    """Return the scales of the inputs; steps are chosen by the curvature only where no read is stale."""
    left_out = "input_curvature" if training.staleness else ""
    return {name: value for name, value in data.scales.items() if name != left_out}


def _length(training: Training, data: DataSummary) -> Mapping[str, Any]:
    """Return the length of the job of a net, as far as it is known."""
    is_net = "job_seed" in data.sizes
    lengths = {"job_clocks": training.clocks, "job_passes": training.passes}
    return {name: value for name, value in lengths.items() if is_net and value is not None}


def job_config(
    job_id: str, training: Training, data: DataSummary, n_reliable: int, scale: float = 1.0, code_sha256: str = ""
) -> JobConfig:
    """Return the configuration with which the engine's controller starts the job.

    Parameters
    ----------
    scale : market seconds per real second.
    code_sha256 : digest of the shipped code; empty if none was shipped.
    """
    return JobConfig(
        job_id=job_id,
        app=training.app,
        app_params={**data.sizes, **_scales(training, data), **_length(training, data), **training.app_params},
        data_url=data.data_url,
        n_partitions=data.n_partitions,
        n_shards=training.shards,
        staleness=training.staleness,
        stage=training.stage,
        stage_2_above=training.stage_2_above,
        stage_3_above=training.stage_3_above,
        servers=training.servers,
        evaluate_every=training.evaluate_every,
        clocks=training.clocks,
        max_seconds=None if training.hours is None else training.hours * HOUR_S / scale,
        seed=training.seed,
        n_reliable=n_reliable,
        checkpoint_s=training.checkpoint_minutes * MINUTE_S / scale,
        code_sha256=code_sha256,
        until=training.until,
        max_partitions_per_node=training.max_partitions_per_node,
        passes=training.passes,
        scale_in=training.scale_in,
        nan=training.nan,
    )
