"""Commands of relfit, run in this process."""

from relfit.cli import main


def run(capsys, *arguments):
    """Status, standard output and standard error of a command."""
    status = main([str(each) for each in arguments])
    return status, *capsys.readouterr()


def refused_line(capsys, *arguments):
    """The one line with which a command is refused."""
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("relfit: error: ")
    return line
