"""Bytes that processes report, and what remains of those that are gone."""

from proteus_spot.psengine.telemetry.byte_counts import LINKS_A_REPORT, ReportedBytes, Traffic, link


def test_a_report_holds_some_links_and_all_of_them_come_in_turn() -> None:
    reported, traffic = ReportedBytes(), Traffic()
    n_links = 2 * LINKS_A_REPORT + 5
    moved = {"read": 7, **{link(f"tcp://{number}"): number + 1 for number in range(n_links)}}
    for _ in range(3):
        part = reported.of(moved)
        assert len(part) == LINKS_A_REPORT + 1
        traffic.note("tcp://a", part)
    assert len(traffic.links()) == n_links, "three reports hold all of them"
    assert traffic.figures()["bytes_moved"]["read"] == 7
    few = dict(list(moved.items())[:9])
    assert ReportedBytes().of(few) == few


def test_what_a_forgotten_process_moved_stays_counted_and_its_late_reports_do_not() -> None:
    traffic = Traffic()
    traffic.joined("tcp://a", "a")
    traffic.joined("tcp://b", "b")
    traffic.note("tcp://a", {"read": 10, link("tcp://b"): 10})
    before = traffic.figures(), traffic.links()
    traffic.forget("tcp://a")
    traffic.note("tcp://a", {"read": 12, link("tcp://b"): 12})
    assert (traffic.figures(), traffic.links()) == before
    assert traffic.links() == [["a", "b", 10]]
    traffic.joined("tcp://a", "a")
    traffic.note("tcp://a", {"read": 1})
    assert traffic.figures()["bytes_moved"]["read"] == 11, "another process at its address"
