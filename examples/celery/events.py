"""A service in Python that handles and emits events beside services in Node, by plain Celery: each service gets each event once.

The names are those of Celery-AMQP-Events (docs/events-rabbitmq.md); services in Node have `events: { on: 'rabbitmq', celery: true }`.
It needs celery (on Debian: apt-get install python3-celery) and a RabbitMQ. From this directory:

    export AMQP_URL=amqp://localhost
    celery -A events worker -Q stock.orders.order.paid -c 4     # one queue for each event that it handles
    npx sluice events emit orders.order.paid '{"order": 7}'     # in a project whose config has the above
    npx sluice events archive list stock                        # what has failed RETRIES times after the first
"""
import os

from celery import Celery
from kombu import Exchange, Queue, binding

SERVICE = "stock"
RETRIES = int(os.environ.get("RETRIES", "10"))
PAID = "orders.order.paid"
SHIPPED = "orders.order.shipped"

app = Celery(SERVICE, broker=os.environ["AMQP_URL"])
events = Exchange("events", type="topic")
recover = Exchange(f"{SERVICE}:recover", type="topic")


def queue_of(name):
    """The queue of one type of events. What Celery itself rejects, because its worker was lost, waits for a second."""
    keys = [binding(events, routing_key=name), binding(recover, routing_key=name)]
    return Queue(f"{SERVICE}.{name}", keys, queue_arguments={"x-dead-letter-exchange": f"{SERVICE}:retry"})


def fanout(name, key, **arguments):
    """An exchange and its queue. A message keeps the type of its event as its routing key."""
    return Queue(name, Exchange(name, type="fanout"), routing_key=key, queue_arguments=arguments)


def step(level, key):
    """The queue in which an event waits for 2 ** level seconds, and from which it goes back to its own queue."""
    name = f"{SERVICE}:retry" + (f".{level}" if level else "")
    return fanout(name, key, **{"x-message-ttl": 1000 * 2**level, "x-dead-letter-exchange": f"{SERVICE}:recover"})


def archive(key):
    """What has failed for good: `sluice events archive list stock`."""
    bounds = {"x-message-ttl": 604_800_000, "x-max-length": 10_000, "x-queue-mode": "lazy"}
    return fanout(f"{SERVICE}:archived", key, **bounds)


def later(task, error):
    """Tries an event again after 1 s, 2 s, 4 s, … on RabbitMQ, so that no worker holds it meanwhile; at last archives it."""
    tried = task.request.retries
    queue = step(min(tried, 9), task.name) if tried < RETRIES else archive(task.name)
    return task.retry(exc=error, countdown=0, max_retries=RETRIES + 1, queue=queue)


app.conf.update(
    task_queues=[queue_of(PAID)],
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"confirm_publish": True},
)

with app.connection_for_write() as connection, connection.channel() as channel:
    step(0, PAID)(channel).declare()
    recover(channel).declare()


def emit(name, **payload):
    """Emits an event; its id is that of Celery's task."""
    return app.send_task(name, kwargs=payload, exchange=events, routing_key=name).id


@app.task(name=PAID, bind=True)
def paid(self, order, **more):
    """Handles an event; `more` has the fields that a later version adds."""
    try:
        if order < 0:
            raise ValueError(f"there is no order {order}")
        emit(SHIPPED, order=order)
    except Exception as error:
        raise later(self, error)
