"""What the user brings, checked: samples, densities, files, data frames and objects of other
libraries.
"""
