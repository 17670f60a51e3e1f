"""Sends jobs: `fill <count> [ms that each takes]`, `mixed <count> <ms> <ms of one that is sent before them>`, `limited <tenants> <hot>
<each>`, `single <seconds>` (prints jobs a second), or `latency <jobs> <gap ms>`."""

import os
import sys
import time

import tasks
from tasks import noop

limited = getattr(tasks, os.environ.get('BENCH_TASK', 'limited'))

MESSAGE = {'accountId': 'a1', 'contactId': '123456', 'pad': 'x' * 168}


def fill(count, ms=0):
    for _ in range(int(count)):
        noop.delay({**MESSAGE, 'ms': int(ms)})


def mixed(count, ms, long_ms):
    noop.delay({**MESSAGE, 'ms': int(long_ms), 'since': 1})
    fill(count, ms)


def fill_limited(tenants, hot, each):
    for _ in range(int(hot)):
        limited.delay({**MESSAGE, 'tenant': 0})
    for _ in range(int(each)):
        for tenant in range(1, int(tenants)):
            limited.delay({**MESSAGE, 'tenant': tenant})


def single(seconds):
    for _ in range(20):
        noop.delay(MESSAGE)
    since = time.monotonic()
    count = 0
    while time.monotonic() - since < float(seconds):
        noop.delay(MESSAGE)
        count += 1
    print(count / (time.monotonic() - since))


def latency(jobs, gap_ms):
    for _ in range(int(jobs)):
        noop.delay({**MESSAGE, 'since': time.monotonic_ns()})
        time.sleep(float(gap_ms) / 1000)


{'fill': fill, 'mixed': mixed, 'limited': fill_limited, 'single': single, 'latency': latency}[sys.argv[1]](*sys.argv[2:])
