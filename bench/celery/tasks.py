"""The task that all Celery benchmarks run, and the fleet-wide token bucket of its limited form (one Lua script on Redis's
clock; a denied job is retried after the time that the bucket returns, without a bound on retries)."""

import os
import struct
import time

from celery import Celery
from celery.signals import worker_ready

app = Celery('bench', broker=os.environ['BENCH_BROKER'])
app.conf.update(
    task_ignore_result=True,
    task_default_queue=os.environ['BENCH_QUEUE'],
    worker_prefetch_multiplier=int(os.environ.get('BENCH_MULTIPLIER', '64')),
    task_acks_late='BENCH_LATE' in os.environ,
    worker_hijack_root_logger=False,
)

if 'BENCH_ANY_PIPE' in os.environ:
    # As with `-O default` of old: a task goes to whatever child's pipe has room. The command line of 5.2 has no option for it.
    from celery.concurrency import asynpool

    asynpool.SCHED_STRATEGIES.update({None: asynpool.SCHED_STRATEGY_FCFS, 'default': asynpool.SCHED_STRATEGY_FCFS})

RUNS = os.open(os.environ['BENCH_RUNS'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

with open(os.path.join(os.path.dirname(__file__), 'bucket.lua')) as file:
    BUCKET = file.read()
_take = None


def take(key, capacity, rate):
    """Seconds to wait; 0: granted."""
    global _take
    if _take is None:
        import redis

        _take = redis.Redis.from_url(os.environ['BENCH_BROKER']).register_script(BUCKET)
    return float(_take(keys=['bucket:' + key], args=[capacity, rate]))


def ran(mark):
    # Writes of 16 bytes are atomic, so appends of several processes do not mix.
    os.write(RUNS, struct.pack('<QQ', time.monotonic_ns(), mark))


@app.task(name='noop')
def noop(message):
    time.sleep(message.get('ms', 0) / 1000)
    ran(message.get('since', 0))


@app.task(name='limited', bind=True, max_retries=None)
def limited(self, message):
    wait = take(str(message['tenant']), float(os.environ['BENCH_CAPACITY']), float(os.environ['BENCH_RATE']))
    if wait > 0:
        raise self.retry(countdown=wait)
    ran(message['tenant'])


@app.task(name='published', bind=True)
def published(self, message):
    """The bucket as it was published: the task keeps Celery's default of three retries, because `max_retries=None` here does not lift it."""
    wait = take(str(message['tenant']), float(os.environ['BENCH_CAPACITY']), float(os.environ['BENCH_RATE']))
    if wait > 0:
        raise self.retry(countdown=max(wait, 0.1), max_retries=None)
    ran(message['tenant'])


@worker_ready.connect
def ready(**_):
    open(os.environ['BENCH_RUNS'] + f'.ready.{os.getpid()}', 'w').close()
