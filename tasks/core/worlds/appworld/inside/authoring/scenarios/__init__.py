"""The scenario templates of an authored root, one module each."""

from ..template import read_template
from . import (
    alarm_switch,
    bill_from_note,
    expense_group,
    file_kind,
    follow_artists,
    like_genre,
    mail_note,
    mail_star,
    mail_unread,
    music_extreme,
    note_create,
    playlist_from_note,
    requests_approve,
    shop_best,
    text_relatives,
    todo_complete,
    venmo_pay,
    venmo_total,
    wish_list_move,
)

_MODULES = (
    alarm_switch,
    bill_from_note,
    expense_group,
    file_kind,
    follow_artists,
    like_genre,
    mail_note,
    mail_star,
    mail_unread,
    music_extreme,
    note_create,
    playlist_from_note,
    requests_approve,
    shop_best,
    text_relatives,
    todo_complete,
    venmo_pay,
    venmo_total,
    wish_list_move,
)

TEMPLATES = [read_template(module) for module in _MODULES]

UNSEEN_APPS = frozenset({"amazon", "gmail", "splitwise"})
"""Apps that only test_challenge needs."""
