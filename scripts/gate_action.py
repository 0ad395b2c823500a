"""The one step of action.yml: run relfit, then tell GitHub. Inputs come from the environment.

The verdict is what this run wrote into result.json, not its exit status: Python itself, or a
command such as ``relfit compare --help``, ends with 0 or 1 too.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

COMMANDS = ("compare", "losses", "evals")
FILES = {
    "--html": "report.html",
    "--json": "result.json",
    "--junit": "gate.xml",
    "--markdown": "gate.md",
}
# Inputs that are one option each.
OPTIONS = ("gate", "gate-against", "gate-require", "margin", "test", "alpha")
NO_ANSWER = 2


def given(name: str) -> str:
    """An input of the action."""
    return os.environ.get(f"RELFIT_{name.upper().replace('-', '_')}", "")


def lines(name: str) -> list[str]:
    """The lines of an input that are not empty."""
    return [line.removesuffix("\r") for line in given(name).split("\n") if line.strip()]


def main() -> int:
    """Run the command and return the exit status of the step."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")
    folder = Path(given("folder") or "relfit-gate")
    try:
        arguments = command_line(folder)
    except (OSError, ValueError) as error:
        return tell(NO_ANSWER, "error", f"relfit gate: {error}", None)
    # A line of a table can begin with a model's name: GitHub must not read ::name:: as a command.
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    # -P: a folder called relfit where the job runs is not the package.
    command = [sys.executable, "-P", "-m", "relfit", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    messages = done.stderr.decode("utf-8", "replace").strip()
    print(messages, file=sys.stderr, flush=True)
    print(f"\n::{token}::", flush=True)
    status, verdict = answer(folder, done.returncode)
    if status != done.returncode:
        ended = f"relfit ended with status {done.returncode} and without a result"
        messages = f"{messages}\n{ended}".strip()
    return tell(status, verdict, messages, folder)


def command_line(folder: Path) -> list[str]:
    """The arguments of relfit; makes the folder and removes what an earlier run left in it."""
    command = given("command") or "compare"
    files = lines("files")
    if command not in COMMANDS:
        raise ValueError(f"command: expected one of {', '.join(COMMANDS)}, got {command!r}")
    if not files:
        raise ValueError("files: expected the files that are compared, one on each line, got none")
    if not str(folder).isprintable():
        raise ValueError(f"folder: expected a name on one line, got {str(folder)!r}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES.values():
        (folder / name).unlink(missing_ok=True)
    options = [word for name in OPTIONS if given(name) for word in (f"--{name}", given(name))]
    # The files come last, so that no option can send them elsewhere.
    outputs = [word for option, name in FILES.items() for word in (option, str(folder / name))]
    return [command, *options, *lines("options"), *outputs, "--", *files]


def answer(folder: Path, status: int) -> tuple[int, str]:
    """The exit status of the step and the verdict, from the result that this run wrote."""
    try:
        result = json.loads((folder / FILES["--json"]).read_text(encoding="utf-8"))
        verdict = str(result.get("gate", {}).get("verdict", "none"))
    except (OSError, ValueError):
        return status if status not in (0, 1, 3) else NO_ANSWER, "error"
    return status, verdict if status in (0, 1, 3) else "error"


def tell(status: int, verdict: str, messages: str, folder: Path | None) -> int:
    """Write the annotation, the summary and the outputs; return the exit status."""
    comment = None if folder is None else folder / FILES["--markdown"]
    if status:
        words = {1: "failed", 3: "inconclusive"}.get(status, f"no answer (status {status})")
        # GitHub reads these characters of a message as its own.
        escaped = messages.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        print(f"::error title=relfit gate {words}::{escaped}", flush=True)
    if comment is not None and comment.is_file():
        summary = comment.read_text(encoding="utf-8")
    else:
        comment = None
        quoted = [f"    {line}" for line in messages.splitlines()]
        summary = "\n".join(["**Gate without an answer:**", "", *quoted, ""])
    outputs = {"status": status, "verdict": verdict, "folder": folder, "comment": comment}
    append("GITHUB_STEP_SUMMARY", summary)
    append("GITHUB_OUTPUT", "".join(f"{name}={'' if value is None else value}\n" for name, value in outputs.items()))
    return status


def append(variable: str, text: str) -> None:
    """Append to a file that GitHub reads."""
    path = os.environ.get(variable)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
