"""A producer of Celery: reads requests, a line of JSON each, and answers each with one."""

import json
import os
import pickle
import sys

from celery import Celery, chain, signature
from celery import group as celery_group
from kombu import Connection, Exchange, Queue

app = Celery('shop', broker=os.environ['BROKER'], backend=os.environ['BACKEND'])
sent = {}


def send(task, args=(), kwargs=None, link=None, link_error=None, **options):
    follow = {'link': link and signature(link), 'link_error': link_error and signature(link_error)}
    found = app.send_task(task, args, kwargs or {}, **{k: v for k, v in follow.items() if v}, **options)
    sent[found.id] = found
    return found.id


def send_chain(tasks):
    last = chain(*[signature(name, args=args, app=app) for name, args in tasks]).apply_async()
    sent[last.id] = last
    return last.id


def group(tasks):
    members = celery_group(signature(name, args=args, app=app) for name, args in tasks)
    return members.apply_async().get(timeout=30)


def odd():
    sent_id = app.send_task('note', (2 ** 60, float('nan'), 1.5)).id
    return sent_id


def hello():
    return app.control.inspect(timeout=0.7).hello('celery@other')


def result(id):
    found = sent[id]
    value = found.get(timeout=30, propagate=False)
    if isinstance(value, Exception):
        value = [type(value).__name__, *[str(one) for one in value.args]]
    return [found.status, value]


def revoke(id):
    app.control.revoke(id)


def inspect(method):
    return getattr(app.control.inspect(timeout=0.7), method)()


def raw(body, content_type, headers):
    with Connection(os.environ['BROKER']) as connection:
        queue = Queue('celery', Exchange('celery'), routing_key='celery')
        payload = pickle.dumps(body) if content_type == 'application/x-python-serialize' else body
        connection.Producer().publish(
            payload, routing_key='celery', exchange='', declare=[queue], headers=headers, content_type=content_type,
            content_encoding='utf-8')


def many(task, n):
    with app.producer_pool.acquire() as producer:
        for i in range(n):
            app.send_task(task, (i,), producer=producer, ignore_result=True)


for line in sys.stdin:
    name, given = json.loads(line)
    answer = globals()[name](**given)
    print(json.dumps(answer), flush=True)
