"""Inserts customers with Django, and sends the jobs of their welcome mails in the same transactions.

A job exists if what was inserted with it exists: also with blocks inside of blocks, which Django makes savepoints. It
needs PostgreSQL, Django and psycopg2 (on Debian: apt-get install python3-django python3-psycopg2). From the checkout, as
in signup.py:

    python3 examples/python/django_signup.py
"""
import os
from urllib.parse import unquote, urlparse

import django
from django.conf import settings

url = urlparse(os.environ["DATABASE_URL"])
database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": unquote(url.path[1:]),
    "USER": unquote(url.username or ""),
    "PASSWORD": unquote(url.password or ""),
    "HOST": url.hostname or "",
    "PORT": str(url.port or ""),
}
settings.configure(DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
django.setup()

from django.db import connection, models, transaction  # noqa: E402  Django has to be set up first

import sluice  # noqa: E402


class Customer(models.Model):
    email = models.EmailField()

    class Meta:
        app_label = "shop"


def sign_up(email, **options):
    """Returns the id of the job."""
    with transaction.atomic(), connection.cursor() as cursor:
        customer = Customer.objects.create(email=email)
        return sluice.send(cursor, "welcome", {"customer": customer.pk, "email": email}, **options)


def sign_up_team(emails):
    """Signs up whom it can: a member that fails is rolled back to its savepoint, alone."""
    with transaction.atomic():
        for email in emails:
            try:
                with transaction.atomic():
                    sign_up(email, **({"prio": 5} if email.startswith("bo@") else {}))
                    if email.endswith("@banned.test"):
                        raise PermissionError(f"{email} may not sign up")
            except (PermissionError, sluice.SluiceError) as error:
                print(f"{email}: neither customer nor job, for {error}")


def main():
    with connection.schema_editor() as editor:
        editor.create_model(Customer)
    print(f"ada@shop.test: job {sign_up('ada@shop.test', tags=['signup'])}")
    sign_up_team(["cy@shop.test", "bo@shop.test", "mallory@banned.test", "di@shop.test"])
    try:
        with transaction.atomic():
            sign_up("eve@shop.test")
            raise RuntimeError("the request has failed")
    except RuntimeError as error:
        print(f"eve@shop.test: neither customer nor job, for {error}")


main()
