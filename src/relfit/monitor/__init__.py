"""Sequential monitoring: the evidence, the file that keeps it, and how a monitor's answer is
shown.
"""

from relfit.monitor.store import Monitor
from relfit.results.monitor import MonitorResult

__all__ = ["Monitor", "MonitorResult"]
