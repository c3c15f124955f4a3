"""Reference models for the tests of tiers, cuts and worst moments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.local_cluster import LocalCluster
from tests.support.tiers import run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a training that nothing befell."""
    with LocalCluster(tmp_path_factory.mktemp("undisturbed"), anew=True) as cluster:
        run(cluster, 1, 1, stage=1)
        status = cluster.wait_state("finished")
        assert set(status["result"]["stage_by_clock"]) == {1}
        model: np.ndarray = cluster.model()["weights"]
        return model.tobytes()
