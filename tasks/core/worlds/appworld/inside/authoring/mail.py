"""Emails in a task's world, sent through the mail app's own API: a thread has rows in four tables."""

from typing import Any

from appworld.apps.api_lib import call_api

from .people import Person


def send_mails(collection: Any, mails: list[tuple[Person, Person, str]]) -> None:
    """One thread per (sender, receiver, subject)."""
    for sender, receiver, subject in mails:
        call_api(
            "gmail",
            "send_email",
            email_addresses=[receiver.email],
            subject=subject,
            body=f"Dear {receiver.first_name}, about: {subject.lower()}. {sender.first_name}",
            user=collection.gmail.User.by_id(sender.id),
        )
