import pytest

from proteus_spot.bidding.tuning.stopping import RULE_NAMES, stopping_rule
from proteus_spot.bidding.tuning.stopping.base import share_of_steps


def test_share_of_steps_does_not_round_up_for_a_last_bit() -> None:
    assert [share_of_steps(share, 10) for share in (0.1, 0.3, 0.6, 0.7, 1.0)] == [1, 3, 6, 7, 10]
    assert share_of_steps(0.7, 15) == 11
    assert share_of_steps(1e-9, 5) == 1


def test_an_unknown_rule_is_answered_by_all_names() -> None:
    with pytest.raises(ValueError, match=", ".join(RULE_NAMES)):
        stopping_rule("hyperband")
