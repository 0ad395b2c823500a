"""Sequential monitoring: the evidence, the file that keeps it, and how a monitor's answer is
shown.
"""

from relfit.monitor.result import MonitorResult
from relfit.monitor.store import Monitor

__all__ = ["Monitor", "MonitorResult"]
