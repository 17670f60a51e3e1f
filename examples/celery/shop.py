"""A stock Celery worker that executes jobs of Sluice: nothing of Sluice is in it but five lines of configuration.

The limit, the retries and the time-outs are those of tasks.ts; `sluice dispatch` gives this worker what may start now. It needs
celery (on Debian: apt-get install python3-celery), a RabbitMQ, and a PostgreSQL for the dispatcher. From this directory:

    export AMQP_URL=amqp://localhost DATABASE_URL=postgres://localhost/shop CRM_API=http://localhost:8080
    export SLUICE_ALLOW_PRIVATE=localhost               # only for a CRM_API on this machine: Node's tasks do not call it otherwise
    celery -A shop worker -Q sync -c 4                  # executes `shop.sync`, in Python
    npx sluice dispatch                                 # in front of it, and of Node's workers
    npx sluice work --broker                            # executes `push`, in Node, under the same limit
    npx sluice send shop.sync '{"customer": 7}'
"""
import os
import urllib.error
import urllib.request

from celery import Celery

app = Celery("shop", broker=os.environ["AMQP_URL"])
app.conf.update(
    result_backend="rpc://",
    task_track_started=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    task_annotations={"*": {"max_retries": 0}},
)


class VendorAnswer(Exception):
    """An answer that is no success: VendorAnswer(status, headers). A 429 holds the limits of the job for as long as the vendor's
    Retry-After says, on all workers, in Python and Node; then the job goes on, and no failure is counted."""


@app.task(name="shop.sync", bind=True)
def sync(self, customer):
    """One call of the vendor for each attempt; an error is retried by the dispatcher, under a new grant."""
    headers = {
        "Idempotency-Key": self.request.root_id,
        "X-Sluice-Attempt": str(self.request.get("sluice_attempt")),
    }
    request = urllib.request.Request(f"{os.environ['CRM_API']}/sync/{customer}", b"", headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return {"status": answer.status}
    except urllib.error.HTTPError as error:
        raise VendorAnswer(error.code, dict(error.headers)) from None
