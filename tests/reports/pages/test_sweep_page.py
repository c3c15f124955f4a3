"""The report of a sweep and its page in the Prefect UI say what its view holds, and escape it."""

from dataclasses import replace

from proteus_spot.reports.pages.figures_page import render
from proteus_spot.reports.pages.sweep_page import TRIAL_COLUMNS, sweep_markdown, sweep_page, trial_rows, trial_table
from tests.support.sweep_views import empty_view, small_view


def test_the_page_has_figures_pictures_and_tables() -> None:
    view = small_view()
    html = render(sweep_page(view, {"time": b"<svg/>", "dollars": b"<svg/>"}))
    for part in (
        "$0.0700",
        "of a budget of $5.00",
        "$0.0200",
        "22% of what was charged",
        "3 of 4",
        "1 running",
        "trial-01",
    ):
        assert part in html
    assert "&lt;b&gt;odd&lt;/b&gt; | data" in html
    assert "<b>odd" not in html
    assert html.count("data:image/svg+xml;base64,") == 2
    assert '<meta name="color-scheme" content="light dark">' in html
    assert "prefers-color-scheme: dark" in html
    assert render(sweep_page(empty_view(), {})).count("no value yet") == 1
    failed = render(sweep_page(replace(view, state="failed", why="no trial has a value"), {}))
    assert '<p class="warning" role="alert">no trial has a value</p>' in failed


def test_the_table_has_the_best_trial_first_and_those_without_a_value_last() -> None:
    rows = trial_table(small_view()).rows
    assert [row[0] for row in rows] == ["trial-01", "trial-00", "trial-02"]
    assert rows[1][1:7] == ("stopped_early", "alpha=1e-05, penalty=l1", "140", "0.5", "0.45 ± 0.02", "$0.0400")
    upside_down = trial_table(replace(small_view(), direction="maximize")).rows
    assert [row[0] for row in upside_down] == ["trial-00", "trial-01", "trial-02"]
    first = trial_rows(small_view())[0]
    assert tuple(first) == TRIAL_COLUMNS
    assert first["machine"] == "m4.large/us-east-1b"


def test_the_page_in_the_prefect_ui_is_short_and_escaped() -> None:
    view = replace(small_view(), state="stopped", why="budget <i>")
    markdown = sweep_markdown(view, b"png", ["proteus sweep show digits"])
    assert markdown.startswith("# digits: stopped (budget &#60;i&#62;)")
    assert "Best setting: alpha=0.001, penalty=l2" in markdown
    assert "data:image/png;base64,cG5n" in markdown
    assert "proteus sweep show digits" in markdown
    assert "| State | stopped (budget &#60;i&#62;) | 65% done |" in markdown


def test_what_is_done_counts_steps_and_trials_that_ended() -> None:
    view = small_view()
    assert view.done_share == (1 + 120 / 200 + 1) / 4 - 0.0
    assert replace(view, state="finished").done_share == 1
    assert empty_view().done_share == 0
    assert view.counts == {"running": 1, "stopped_early": 1, "failed": 1}
