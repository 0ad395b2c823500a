"""The paper's problems and experiments; every run can be stopped and resumed."""
