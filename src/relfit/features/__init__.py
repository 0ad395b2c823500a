"""Features of images and texts, so that models of either can be compared. One file an
extractor or family of them.
"""
