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
    """Sluice refused the job. Like after any error of PostgreSQL, the transaction can only be rolled back."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code  # stable, for programs: SLUICE_BAD_OPTION, SLUICE_BAD_TASK, SLUICE_PAYLOAD_TOO_LARGE, ...


def send(cursor, task, input, **options):
    """Records a job of `task` and returns its id; it exists from the commit of the cursor's transaction on.

    `input` is what JSON can say. Options: queue, priority (-1000 to 1000, higher first), delay and max_wait (a timedelta
    or seconds), at (a datetime), tags, idempotency_key (no second job for 24 h), id (a UUIDv7).
    Raises SluiceError for a bad name or option. Whether the input fits the task only its worker can tell: a job that
    does not ends as failed (`refused`).
    """
    values = [task, json.dumps(input, allow_nan=False), json.dumps(options, default=_plain, allow_nan=False)]
    try:
        cursor.execute("select sluice.send(%s, %s::jsonb, %s::jsonb)", values)
    except Exception as error:
        # Django wraps the driver's error, which then is the cause.
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
        return value.astimezone().isoformat()  # one without a zone is local time
    raise TypeError(f"an option cannot be a {type(value).__name__}")
