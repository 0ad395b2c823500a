"""Do plans come true? The power that plan() forecasts from the population, beside the power on fresh data."""
