"""HTML reports, each in one file.

figures_page  HTML report of a backtest or of a local training
job_markdown  page of a job in the Prefect UI, as Markdown
job_page      HTML report of a job
job_series    data of the chart in a job's report: thinned series, events, decisions
page_tables   tables of a job's report: decisions, ledger, parameters, links
sweep_page    HTML report of a sweep, and its page in the Prefect UI
"""
