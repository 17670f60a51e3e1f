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

RUNS = os.open(os.environ['BENCH_RUNS'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

BUCKET = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = tonumber(state[1]) or capacity
local at = tonumber(state[2]) or now
level = math.min(capacity, level + math.max(now - at, 0) * rate / 1000000)
if level >= 1 then
  redis.call('HSET', KEYS[1], 'level', level - 1, 'at', now)
  redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000) + 1000)
  return '0'
end
return tostring((1 - level) / rate)
"""
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
