"""Calls the vendor under the limit `shared` of Redis, as often as it may, until it is told to end; says how often it did."""
import sys
import threading
import urllib.request

import redis

import limits as module

_, url, vendor = sys.argv
limits = module.Limits(redis.Redis.from_url(url, socket_timeout=2))
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
count = 0
while not ended.is_set():
    try:
        limits.take("shared", timeout=1).check()
    except (module.LimitError, redis.RedisError):
        ended.wait(0.02)
        continue
    urllib.request.urlopen(vendor + "/python").read()
    count += 1
print(count, flush=True)
