"""Pages and pictures: records and arrays in, bytes out. Only this package imports Matplotlib and Jinja.

pages/     HTML pages
pictures/  pictures, drawn by Matplotlib without a screen
"""
