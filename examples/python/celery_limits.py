"""Celery tasks under limits of Sluice in Redis: the rate holds for the whole fleet, however many workers there are.

A task that finds no room goes back to the queue with the countdown that the limit returns: it does not sleep in a worker, and
does not use up its `max_retries`, however often that happens. It needs celery and redis (on Debian: apt-get install
python3-celery python3-redis), limits.py and limits_lua.py, and a limit `crm` that Sluice has published in that Redis
(docs/redis.md). The server must not evict keys (maxmemory-policy noeviction). From this directory:

    export REDIS_URL=redis://localhost:6379/0
    celery -A celery_limits worker --concurrency 8
    python3 celery_limits.py 100                              # sends 100 calls
"""
import os
import random
import sys
import urllib.request

import redis
from celery import Celery, Task
from celery.exceptions import Retry

from limits import Denied, GrantExpired, Limits, StateLost

URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
# The longest countdown. Celery's Redis broker delivers messages again that are not acknowledged within an hour, and a message
# in its countdown is not, so the countdown has to be shorter.
LONGEST = 600.0

app = Celery("celery_limits", broker=URL)
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1)
_limits = None


def limits():
    """Created at first use, because each process of a worker needs its own connections."""
    global _limits
    if _limits is None:
        _limits = Limits(redis.Redis.from_url(URL, socket_timeout=2))
    return _limits


class Limited(Task):
    """A task with `limit`: a name, or a function of its arguments that returns what limits.py takes, such as ("crm", account)."""

    limit = None

    def __call__(self, *args, **kwargs):
        want = self.limit(*args, **kwargs) if callable(self.limit) else self.limit
        if want is not None:
            if self.request.called_directly or self.request.is_eager:
                limits().take(want)  # there is no queue to go back to
            else:
                self.begin(want)
        return self.run(*args, **kwargs)

    def begin(self, want):
        """Returns if there is a grant; else postpones the task."""
        try:
            return limits().reserve(want).check()
        except Denied as denied:
            wait = denied.wait
        except GrantExpired:  # the way to Redis was slow
            wait = 0.1
        except (StateLost, redis.RedisError):  # without a grant there is no call; retry later
            wait = 5.0
        # At least a tenth of a second, never earlier than the limit returned, and not all tasks at once.
        self.put_off(min(LONGEST, max(0.1, wait) * random.uniform(1, 1.1)))

    def put_off(self, seconds):
        """Like Task.retry, but does not count a retry, because nothing was tried."""
        again = self.signature_from_request(self.request, countdown=seconds, retries=self.request.retries)
        again.apply_async()
        raise Retry(when=seconds, sig=again)


@app.task(base=Limited, limit="crm", autoretry_for=(OSError,), retry_backoff=True, max_retries=3)
def call(number):
    """Makes one request to the vendor; an error is retried three times, each time under the limit."""
    api = os.environ.get("CRM_API")
    if api is None:
        return print(f"CRM_API is not set, so call {number} goes nowhere", flush=True)
    urllib.request.urlopen(f"{api}/calls/{number}", timeout=10).close()


if __name__ == "__main__":
    for one in range(int(sys.argv[1])):
        call.delay(one)
