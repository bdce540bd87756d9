"""Emails in a task's world, sent through the mail app's own API: a thread has rows in four tables."""

from typing import Any

from appworld.apps.api_lib import call_api

from .people import Person

_SUBJECTS = ("Keys", "Question about the form", "Next week", "Photos", "Borrowed book", "Idea", "Directions", "Hello")


def send_mails(collection: Any, pairs: list[tuple[Person, Person]]) -> None:
    """One thread per (sender, receiver), subjects in turn."""
    for number, (sender, receiver) in enumerate(pairs):
        subject = _SUBJECTS[number % len(_SUBJECTS)]
        call_api(
            "gmail",
            "send_email",
            email_addresses=[receiver.email],
            subject=subject,
            body=f"Dear {receiver.first_name}, about: {subject.lower()}. {sender.first_name}",
            user=collection.gmail.User.by_id(sender.id),
        )
