import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidding.economics.work import effective_time_s, expected_work
from tests.support.markets import PROPERTY


@pytest.mark.parametrize(
    ("useful_s", "any_eviction", "overhead_s", "resize_s", "effective_s"),
    [
        (3600, 0.0, 60, 0, 3600),
        (2700, 0.5, 60, 0, 2670),  # 2700 - 0.5 x 60
        (3000, 0.6, 60, 20, 2944),  # 3000 - 0.6 x 60 - 20
        (10, 1.0, 60, 20, 0),  # overheads cannot undo work
    ],
)
def test_effective_time_by_hand(useful_s, any_eviction, overhead_s, resize_s, effective_s):
    assert effective_time_s(useful_s, any_eviction, overhead_s, resize_s) == pytest.approx(effective_s)


@PROPERTY
@given(st.floats(0, 3600), st.floats(0, 1), st.floats(0, 5000), st.floats(0, 5000))
def test_effective_time_is_never_negative_and_never_more_than_the_useful(useful_s, any_eviction, overhead_s, resize_s):
    assert 0 <= effective_time_s(useful_s, any_eviction, overhead_s, resize_s) <= useful_s


def test_work_by_hand():
    # 4 x 2644 s x 4 vCPUs + 8 x 2944 s x 4 vCPUs = 136512 vCPU-seconds
    assert expected_work(1.0, [4, 8], [2644, 2944], [4, 4]) == pytest.approx(136_512)
    assert expected_work(0.5, [4, 8], [2644, 2944], [4, 4]) == pytest.approx(68_256)


def test_work_sums_the_last_axis_alone():
    assert expected_work(1.0, [[1, 2], [3, 4]], 10, 1).tolist() == [30, 70]
