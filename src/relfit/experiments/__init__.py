"""The paper's tables and figures, run through the public API; every experiment can be stopped and resumed."""
