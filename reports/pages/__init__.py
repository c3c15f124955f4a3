"""HTML pages.

figures_page  the HTML report of a backtest, or of a training on this machine: what it shows, as values, and the
one file that they become
job_page      the HTML report of a job: what it shows, as values, and the one file that they become
job_series    what the report draws on its time axis, as JSON: series thinned to what a screen shows, and marks
that are all kept
job_tables    the tables of a job's report: what the chart shows, as text, and what it cost, to the last micro-
dollar
"""
