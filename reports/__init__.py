"""Pages and pictures: records and arrays in, bytes out. Only this package imports Matplotlib and Jinja.

pages/     HTML reports of jobs, backtests and trainings
pictures/  Matplotlib figures as SVG, PNG or PDF
"""
