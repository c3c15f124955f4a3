"""Pages and pictures: records and arrays in, bytes out. Only this package imports Matplotlib and Jinja.

pages/      HTML reports of jobs, sweeps, backtests and trainings
pictures/   Matplotlib figures as SVG, PNG or PDF
sweep_view  a sweep at one moment: what its table, pictures and page show
"""
