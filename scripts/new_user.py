"""Follow the README as a new user would, in an empty folder, and write down what happens and how long it takes.

    python scripts/new_user.py dist/*.whl --docs docs/evidence/new-user.md

The commands and the Python example are taken from the README; only `pip install relfit` is given the wheel, and
.npy files are made first, as the README's command names them: a user has files of their own.
"""

import argparse
import json
import os
import platform
import re
import tempfile
import time
from pathlib import Path

from try_wheel import empty_environment, run

README = Path(__file__).parents[1] / "README.md"
LIMIT = 300.0
FILES = """\
import numpy as np

rng = np.random.default_rng(0)
for name, shift in zip({names}, (0.0, 0.0, 0.05, 0.2)):
    np.save(name, rng.normal(shift, 1, (1000, 5)))
"""
PAGE = """# A new user's first five minutes

Written by `make new-user` (`scripts/new_user.py`): an empty folder, a new virtual environment, the built wheel, and
then what the README says, nothing else. From the empty folder to the report on four files of one's own:
**{seconds:.0f} seconds** (the aim is under five minutes).

{machine}. Nearly all of it is making the environment and installing, and depends on what else the
machine does. Runs so far, the one below last: {runs} s.

{steps}
The report is one file of {size:.0f} kB. How it reads: [the report](../report.md).
"""


def readme_steps(text):
    """The install and compare commands, and the Python example."""
    commands = re.findall(r"^(?:pip install relfit|relfit compare [^\n#]*)", text, flags=re.MULTILINE)
    (example,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [command.strip() for command in commands], example


def _earlier_runs(page):
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    found = re.search(r"Runs so far[^:]*: ([\d, ]+) s", text)
    return found[1].split(", ") if found else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--docs", type=Path, required=True, help="write the transcript to this file")
    arguments = parser.parse_args()
    (install, compare), example = readme_steps(README.read_text(encoding="utf-8"))
    names = re.findall(r"[\w-]+\.npy", compare)
    wheel = arguments.wheel.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder, steps, begun = Path(name), [], time.perf_counter()

        def step(shown, command, keep=True):
            output, seconds = run(command, folder, variables)
            output = output.replace(str(folder), "~/try") if keep else ""
            steps.append(f"```console\n$ {shown}\n{output}```\n\n{seconds:.1f} s\n")

        variables = empty_environment(folder / "venv")
        making = time.perf_counter() - begun
        steps.append(f"```console\n$ python -m venv venv && . venv/bin/activate\n```\n\n{making:.1f} s\n")
        step(install.replace("relfit", wheel.name), f"python -m pip install --quiet '{wheel}'", keep=False)
        # Quoted as the formatter wants it: it looks at the page as well.
        made = FILES.format(names=f"({', '.join(map(json.dumps, names))})")
        (folder / "files.py").write_text(made, encoding="utf-8")
        steps.append(f"Four files to compare, `files.py`:\n\n```python\n{made}```\n")
        step("python files.py", "python files.py")
        step(compare, compare)
        finished = time.perf_counter() - begun
        report = folder / re.search(r"--html (\S+)", compare)[1]
        steps.append("Then the README's Python example, saved as `example.py`:\n")
        (folder / "example.py").write_text(example, encoding="utf-8")
        step("python example.py", "python example.py")
        size = report.stat().st_size / 1000
    machine = f"{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    runs = ", ".join([*_earlier_runs(arguments.docs), f"{finished:.0f}"])
    page = PAGE.format(machine=machine, seconds=finished, steps="\n".join(steps), size=size, runs=runs)
    arguments.docs.write_text(page, encoding="utf-8")
    print(f"{finished:.0f} s to the report; {arguments.docs.name} written")
    if finished > LIMIT:
        raise SystemExit(f"expected a report within {LIMIT:.0f} s")


if __name__ == "__main__":
    main()
