"""Peak memory above the inputs of one comparison of a million rows, measured in a process of its own."""

import json
import subprocess
import sys

ROWS, COLUMNS, MODELS = 1_000_000, 50, 5
ALLOWED = 500.0
_SCRIPT = """
import json, pathlib, re, sys, time
import numpy as np, relfit
from studies.study import estimator_options
n, d, l, samples, seed, options = json.loads(sys.argv[1])
if "estimator" in options:
    options = estimator_options(**options)
def status(field):
    return int(re.search(field + r":\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
rng = np.random.default_rng(0)
x = rng.standard_normal((n, d))
models = [relfit.Density(score=lambda z, k=k: np.tanh(z * (1 + k)) - z, dim=d) for k in range(l)]
if samples:
    models = [rng.standard_normal((n, d)) for _ in range(l)]
    for k, rows in enumerate(models):
        rows += 0.05 * k
before = status("VmRSS")
pathlib.Path("/proc/self/clear_refs").write_text("5")
start = time.perf_counter()
relfit.compare(x, models, rng=seed, progress=False, **options)
print(json.dumps({"megabytes": status("VmHWM") - before, "seconds": time.perf_counter() - start}))
"""


def cells():
    """Every estimator that a million rows are for."""
    pair_designs = [{"estimator": "linear"}, {"estimator": "incomplete"}, {"estimator": "block", "blocks": 20_000}]
    return [
        {"samples": samples, "options": options}
        for samples, locations in ((True, "ume"), (False, "fssd"))
        for options in (*pair_designs, {"discrepancy": locations})
    ]


def trial(setting, seed):
    """Megabytes above the inputs, and seconds."""
    arguments = json.dumps([ROWS, COLUMNS, MODELS, setting["samples"], seed, setting["options"]])
    command = [sys.executable, "-c", _SCRIPT, arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rows(setting, results):
    """One row: the largest peak seen, the shortest time."""
    options = setting["options"]
    name = options.get("discrepancy", "mmd" if setting["samples"] else "ksd").upper()
    blocks = f", {options['blocks']:,} blocks" if "blocks" in options else ""
    return [
        {
            "discrepancy": name,
            "estimator": options.get("estimator", "") + blocks,
            "peak above the inputs, MB": f"{max(result['megabytes'] for result in results):.0f}",
            "seconds": f"{min(result['seconds'] for result in results):.1f}",
        }
    ]
