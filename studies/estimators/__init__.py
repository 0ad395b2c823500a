"""Are the estimators unbiased, are their covariances right, and what do they cost and find?"""
