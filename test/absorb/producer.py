"""A producer of Celery: reads requests, a line of JSON each, and answers each with one."""

import json
import os
import pickle
import sys
import threading

from celery import Celery, chain, chord, signature
from celery import group as celery_group
from kombu import Connection, Exchange, Queue

app = Celery('shop', broker=os.environ['BROKER'], backend=os.environ['BACKEND'])
sent = {}
watched = []
state = app.events.State()


def send(task, args=(), kwargs=None, link=None, link_error=None, **options):
    follow = {'link': link and signature(link), 'link_error': link_error and signature(link_error)}
    found = app.send_task(task, args, kwargs or {}, **{k: v for k, v in follow.items() if v}, **options)
    sent[found.id] = found
    return found.id


def send_chain(tasks):
    last = chain(*[signature(name, args=args, app=app, **more) for name, args, more in tasks]).apply_async()
    sent[last.id] = last
    return last.id


def group(tasks):
    members = celery_group(signature(name, args=args, app=app) for name, args in tasks)
    return members.apply_async().get(timeout=150)


def send_chord(tasks, body):
    last = chord([signature(name, args=args, app=app) for name, args in tasks], signature(body, app=app)).apply_async()
    sent[last.id] = last
    return last.id


def send_canvas():
    """Sends a chord whose last task is a chain with a group at its end; returns the ids of the group's last tasks."""

    def add(*args):
        return signature('add', args=args, app=app)

    last = add() | add(4) | celery_group(add(10), add(20) | add(1))
    found = chord([add(1, 2), add(3)])(last).results
    sent.update({one.id: one for one in found})
    return [one.id for one in found]


def send_middle(first):
    """Sends a chain with groups in its middle, of which Celery makes chords."""

    def add(*args):
        return signature('add', args=args, app=app)

    fanned = celery_group(add(10), add(20) | add(1))
    tasks = signature(first, args=(1, 2), app=app), fanned, add(100), celery_group(add(1000), add(2000)), add(5)
    last = chain(*tasks).apply_async()
    sent[last.id] = last
    return last.id


def states(id):
    found = []
    # The backend also passes on what an earlier call has left unread.
    sent[id].get(timeout=150, propagate=False, on_message=lambda message: message['task_id'] == id and found.append(
        [message['status'], plain(message['result'])]))
    return found


def watch(enable=True):
    ready = threading.Event()

    def note(event):
        watched.append(event)
        state.event(event)

    def run():
        with Connection(os.environ['BROKER']) as connection:
            receiver = app.events.Receiver(connection, handlers={'*': note})
            receiver.on_consume_ready = lambda *args, **options: ready.set()
            receiver.capture(limit=None, timeout=None, wakeup=False)

    threading.Thread(target=run, daemon=True).start()
    ready.wait(30)
    return app.control.broadcast('enable_events', reply=True, **first()) if enable else None


def seen(id=None):
    task = state.tasks.get(id)
    return {
        'events': [event for event in watched if id is None or event.get('uuid') == id],
        'state': task and task.state,
        'alive': {name: worker.alive for name, worker in state.workers.items()},
    }


def first(everybody=False):
    """How long answers are awaited: until the first one, or a second, in which others answer too, if they do."""
    return {'timeout': 1} if everybody else {'timeout': 60, 'limit': 1}


def control(method, arguments=None, everybody=False):
    replies = app.control.broadcast(method, arguments=arguments or {}, reply=True, **first(everybody))
    return [value for reply in replies for value in reply.values()]


def odd():
    sent_id = app.send_task('note', (2 ** 60, float('nan'), 1.5)).id
    return sent_id


def hello():
    return app.control.inspect(**first()).hello('celery@other')


def result(id):
    found = sent[id]
    value = found.get(timeout=150, propagate=False)
    return [found.status, plain(value)]


def plain(value):
    if isinstance(value, dict) and 'exc_type' in value:
        return [value['exc_type'], *value['exc_message']]
    return [type(value).__name__, *[str(one) for one in value.args]] if isinstance(value, Exception) else value


def revoke(id, **options):
    app.control.revoke(id, **options)


def inspect(method, everybody=False):
    return getattr(app.control.inspect(**first(everybody)), method)()


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
