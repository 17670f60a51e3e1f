"""Sends jobs to Sluice from Python, in the transaction that the caller has open.

With psycopg2 or psycopg (3):

    with connection, connection.cursor() as cursor:
        sluice.send(cursor, "welcome", {"customer": 7})

With Django, whose cursors are the same:

    with transaction.atomic(), connection.cursor() as cursor:
        customer = Customer.objects.create(email=email)
        sluice.send(cursor, "welcome", {"customer": customer.pk})
"""
import json
from datetime import datetime, timedelta


class SluiceError(Exception):
    """Sluice rejected the job. As after any error of PostgreSQL, the transaction can only be rolled back."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code  # stable, for programs: SLUICE_BAD_OPTION, SLUICE_BAD_TASK, SLUICE_PAYLOAD_TOO_LARGE, ...


def send(cursor, task, input, **options):
    """Sends a job of `task` and returns its id. The job exists once the cursor's transaction has committed.

    `input` is any value that JSON can represent. Options: queue, priority (-1000 to 1000, higher first), delay and max_wait
    (a timedelta or seconds), at (a datetime), tags, idempotency_key (no second job for 24 h), id (a UUIDv7).
    Raises SluiceError for a bad name or option. Only a worker can check the input against the task's schema: a job whose
    input does not match fails (`refused`).
    """
    values = [task, json.dumps(input, allow_nan=False), json.dumps(options, default=_plain, allow_nan=False)]
    try:
        cursor.execute("select sluice.send(%s, %s::jsonb, %s::jsonb)", values)
    except Exception as error:
        # Django wraps the driver's error; it is the cause then.
        diag = getattr(error.__cause__ or error, "diag", None)
        code, _, message = (getattr(diag, "message_primary", None) or "").partition(": ")
        if not code.startswith("SLUICE_"):
            raise
        raise SluiceError(code, message) from error
    return str(cursor.fetchone()[0])


def _plain(value):
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone().isoformat()  # a datetime without a zone is local time
    raise TypeError(f"an option cannot be a {type(value).__name__}")
