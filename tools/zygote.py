"""Commands in processes of their own that start in milliseconds: each is a fork of one that has imported everything.

python -m tools.zygote [MODULE...]  reads {"args": [...], "folder": ..., "out": ..., "room": bytes or null} from
standard input, one on each line, and answers each with the number of the process; "wait" answers with the exit status
of such a process. The modules are imported, too. "constants" are set in the process: {"module:NAME": value}; "main"
names another command than relfit: "module:function" of click.
"""

import json
import os
import pkgutil
import resource
import signal
import sys
from importlib import import_module

from relfit import cli
from relfit.cli import compare, plan, report, scores  # noqa: F401  (imported once for all)
from relfit.report import page  # noqa: F401


def command(request):
    """Become the command: its own process group, its own streams, and no more room than there is on its disk."""
    os.setpgid(0, 0)
    os.chdir(request["folder"])
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{request['out']}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    if request["room"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["room"], request["room"]))
    for name, value in request.get("constants", {}).items():
        module, _, constant = name.partition(":")
        setattr(import_module(module), constant, value)
    if "main" in request:
        pkgutil.resolve_name(request["main"])(request["args"], standalone_mode=False)
        os._exit(0)
    status = cli.main(request["args"])
    sys.stdout.flush()
    os._exit(status)


def main():
    """Answer requests until there are no more."""
    for name in sys.argv[1:]:
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                command(request)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
