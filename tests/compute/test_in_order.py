"""The one loop behind threads, processes and clusters: results in order, few tasks at a time, the rest cancelled."""

from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor

import pytest

from relfit.compute.reduce import SERIAL_PAIRS, local_executor, local_results
from relfit.compute.schedulers import in_order
from relfit.util.errors import WorkersLost


class Recorded:
    """Tasks that finish when their result is asked for, and what became of them."""

    def __init__(self):
        self.submitted, self.cancelled, self.most = [], [], 0

    def submit(self, task):
        self.submitted.append(task)
        return task

    def first_result(self, handles):
        self.most = max(self.most, len(handles))
        if handles[0] == "broken":
            raise ValueError("broken")
        return handles[0] * 2

    def cancel(self, handles):
        self.cancelled = list(handles)

    def run(self, tasks, in_flight=3):
        return in_order(tasks, self.submit, lambda: in_flight, self.first_result, self.cancel)


def test_results_come_in_order_and_few_tasks_are_held():
    taken, recorded = [], Recorded()
    results = recorded.run(taken.append(k) or k for k in range(8))
    assert next(results) == (0, 0)
    assert taken == [0, 1, 2]
    assert next(results) == (1, 2)
    assert taken == [0, 1, 2, 3]
    assert list(results) == [(k, 2 * k) for k in range(2, 8)]
    assert recorded.most == 3
    assert recorded.cancelled == []


def test_an_error_or_closing_cancels_the_unfinished_tasks():
    recorded = Recorded()
    with pytest.raises(ValueError, match="broken"):
        list(recorded.run([1, "broken", 3, 4, 5]))
    assert recorded.submitted == [1, "broken", 3, 4]
    assert recorded.cancelled == ["broken", 3, 4]
    recorded = Recorded()
    results = recorded.run(range(10))
    next(results)
    results.close()
    assert recorded.cancelled == [1, 2]


def test_threads_only_where_they_pay_and_a_broken_executor_is_reported():
    for pairs, threads, kind in (
        (SERIAL_PAIRS, 2, ThreadPoolExecutor),
        (SERIAL_PAIRS - 1, 2, type(None)),
        (10**9, 1, type(None)),
    ):
        with local_executor(pairs, threads) as executor:
            assert type(executor) is kind
            assert list(local_results([3, 2], lambda x: (pow, x, 2), executor)) == [(3, 9), (2, 4)]
    broken = Future()
    broken.set_exception(BrokenExecutor("killed"))
    with pytest.raises(WorkersLost, match=r"ended without a result.*killed"):
        list(in_order([1], lambda task: broken, lambda: 1))
