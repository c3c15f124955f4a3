"""The number of files that a node may open."""

import resource

from proteus_spot.infra.nodes.open_files import raise_file_limit


def test_the_limit_is_raised_as_far_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raised = raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, hard)
        assert raised == (1 << 15 if hard == resource.RLIM_INFINITY else min(hard, 1 << 15))
        assert raise_file_limit() == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
