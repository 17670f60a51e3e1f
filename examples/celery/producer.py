"""A producer of Celery that stays as it is, but for its routes: what it calls runs in Python and in Node, under the limit of tasks.ts.

Its tasks go to a queue that the dispatcher reads, which makes a job of each message and sends the result back. With the worker of
shop.py, and from this directory with its environment:

    npx sluice dispatch --celery sluice-in              # in front of both fleets, and of this queue
    npx sluice work --broker                            # executes `push`
    python3 producer.py 20                              # calls `shop.sync` and `push`, each 20 times

In Django send after the commit, by transaction.on_commit(lambda: app.send_task(…)); a job that is part of the transaction itself
is sent by SQL (../python/django_signup.py).
"""
import os
import sys

from celery import Celery

app = Celery("producer", broker=os.environ["AMQP_URL"], backend="rpc://")
app.conf.task_routes = {"shop.sync": {"queue": "sluice-in"}, "push": {"queue": "sluice-in"}}

if __name__ == "__main__":
    calls = [
        (name, customer, app.send_task(name, kwargs={"customer": customer}))
        for customer in range(int(sys.argv[1]))
        for name in ("shop.sync", "push")
    ]
    for name, customer, call in calls:
        print(f"{name} {customer}: {call.get(timeout=120)}")
