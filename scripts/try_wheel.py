"""Install a wheel into an empty environment outside the repository, and run what it promises there.

python scripts/try_wheel.py dist/*.whl
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

COMMANDS = ("relfit --version", "python -m relfit --version", "relfit doctor", "relfit demo")


def empty_environment(folder):
    """A fresh virtual environment in `folder`, and the variables with which its programs run."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "PATH": f"{programs}{os.pathsep}{kept['PATH']}", "VIRTUAL_ENV": str(folder)}


def run(command, folder, variables):
    """The command's output, both streams, and its seconds; anything but success ends the script."""
    start = time.perf_counter()
    done = subprocess.run(
        command, shell=True, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout, time.perf_counter() - start


def main(wheel):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = empty_environment(folder / "venv")
        run(f"python -m pip install --quiet '{wheel}'", folder, variables)
        where, _ = run('python -c "import relfit; print(relfit.__file__)"', folder, variables)
        if not Path(where.strip()).resolve().is_relative_to(folder.resolve()):
            sys.exit(f"relfit was imported from {where.strip()}, not from the wheel")
        for command in COMMANDS:
            shown, seconds = run(command, folder, variables)
            print(f"$ {command}   ({seconds:.1f} s)\n{shown}")
        if not (folder / "relfit-demo.html").stat().st_size > 10_000:
            sys.exit("relfit demo: expected a report in relfit-demo.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
