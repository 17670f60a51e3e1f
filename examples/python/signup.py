"""Inserts a customer and sends the job of their welcome mail in one transaction, both or neither.

Python code like that of a Django project sends the jobs. A worker in Node, which has the task's code, checks them against
its schema, applies limits, routes and rules, and runs them. It needs PostgreSQL and psycopg2 (on Debian:
apt-get install python3-psycopg2). From the checkout:

    npm run setup
    export DATABASE_URL=postgresql://localhost/shop               # a database to play with
    node dist/cli/main.js migrate
    python3 examples/python/signup.py                             # /usr/bin/python3, if another comes first in PATH
    node dist/cli/main.js jobs                                    # the jobs wait for a worker that knows them
    node dist/cli/main.js dispatch --once --config examples/python/sluice.config.ts
"""
import os
from datetime import timedelta

import psycopg2

import sluice


def sign_up(connection, email, **options):
    """Returns the id of the job."""
    with connection, connection.cursor() as cursor:  # commits, or rolls back when something is raised
        cursor.execute("insert into customer (email) values (%s) returning id", [email])
        customer = cursor.fetchone()[0]
        job = sluice.send(cursor, "welcome", {"customer": customer, "email": email}, **options)
        if email.endswith("@banned.test"):
            raise PermissionError(f"{email} may not sign up")
        return job


def attempt(connection, email, **options):
    try:
        print(f"{email}: job {sign_up(connection, email, **options)}")
    except (PermissionError, sluice.SluiceError) as error:
        print(f"{email}: neither customer nor job, for {error}")


def main():
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    with connection, connection.cursor() as cursor:
        cursor.execute("create table if not exists customer (id serial primary key, email text not null)")
    attempt(connection, "ada@shop.test", priority=5, tags=["signup"], max_wait=timedelta(days=1))
    attempt(connection, "mallory@banned.test")  # raises after the job was sent
    attempt(connection, "bo@shop.test", prio=5)  # there is no such option
    attempt(connection, "probe@example.com")  # a rule of the worker discards what goes to test addresses
    attempt(connection, "not an address")  # the schema of the task rejects it
    connection.close()


main()
