"""Do the confidence bounds of relpsi, carve and best-set hold what they promise? And margins and groups their level?"""
