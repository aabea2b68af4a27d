"""Settings of Django's test suite: the server that libpq's variables name, and a runner that keeps lines."""

import os


def server(name):
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "NAME": name,
        "TEST": {"NAME": f"test_{name}"},
    }


DATABASES = {"default": server("django"), "other": server("django_other")}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_lines.LinesRunner"
