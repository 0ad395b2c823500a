"""Sequential monitoring: the evidence, the file that keeps it, and how a monitor's answer is shown."""

from relfit.monitor.result import MonitorResult
from relfit.monitor.store import Monitor
from relfit.monitor.words import monitor_display
from relfit.util.attached import attach

__all__ = ["Monitor", "MonitorResult"]

attach("MonitorResult._display", lambda: monitor_display)
