"""A process that is told, line by line on stdin, what to do with the limits of examples/python/limits.py, and answers likewise."""
import json
import sys
import time

import redis

import limits as module

_, url, prefix, domain = sys.argv
limits = module.Limits(redis.Redis.from_url(url, socket_timeout=2), prefix, domain)
grants = {}


def keep(grant):
    grants[grant.id] = grant
    return grant.id


def run(wants, seconds):
    """Calls as often as it may, and says when it did."""
    ends, arrivals = time.monotonic() + seconds, []
    while time.monotonic() < ends:
        try:
            limits.take(*wants, timeout=ends - time.monotonic()).check()
            arrivals.append(time.monotonic_ns())
            time.sleep(0.01)  # so that nobody has a window to himself
        except (module.LimitError, redis.RedisError):
            pass
    return arrivals


def nap(seconds, wants):
    """Takes a grant, and lets it grow old."""
    with limits.take(*wants) as grant:
        time.sleep(seconds)
        grant.check()


def decorated(wants, value):
    return limits.limited(*wants)(lambda one: one * 2)(value)


def step(name, seconds):
    """As if Redis's clock had stepped forward since it was last heard."""
    us, heard = getattr(limits, name)
    setattr(limits, name, (us - int(seconds * 1e6), heard))


acts = {
    "step": step,
    "reserve": lambda wants: keep(limits.reserve(*map(tuple, wants))),
    "take": lambda wants, timeout: keep(limits.take(*map(tuple, wants), timeout=timeout)),
    "settle": lambda id, *how: grants[id].settle(*how),
    "give_back": lambda id: grants[id].give_back(),
    "lease": lambda want, timeout, seconds: keep(limits.lease(tuple(want), timeout=timeout, seconds=seconds)),
    "release": lambda id: grants[id].release(),
    "lost": lambda id, timeout: grants[id].lost.wait(timeout),
    "hold": lambda want, seconds: limits.hold(tuple(want), seconds),
    "run": lambda wants, seconds: run(list(map(tuple, wants)), seconds),
    "nap": lambda wants, seconds: nap(seconds, list(map(tuple, wants))),
    "decorated": lambda wants, value: decorated(list(map(tuple, wants)), value),
    "boundaries": lambda all: [module.boundaries(calendar, at) for calendar, at in all],
}
for line in sys.stdin:
    act, *values = json.loads(line)
    try:
        answer = {"value": acts[act](*values)}
    except (module.LimitError, redis.RedisError) as error:
        answer = {"error": type(error).__name__, "text": str(error), "wait": getattr(error, "wait", None)}
    print(json.dumps(answer), flush=True)
