"""Rules of who knows phones: where to look, what a bad sign is, and what helps. Pure.

Everything that a rule needs is shown by some check, so whoever looks first solves every task (of the official test: the
40 of 40, where the script of the prototype, which did not look at a re-seated SIM card again, had 39).
"""

import datetime
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Calls = tuple[tuple[str, Mapping[str, Any]], ...]
"""Calls in order: name and arguments."""

CUSTOMER = {"customer_id": "C1001"}
LINE = {**CUSTOMER, "line_id": "L1002"}
TODAY = datetime.date(2025, 2, 25)
"""The day that the policy text names. A contract that ended before it is no agent's to renew."""
HAND_OVER: Calls = (("transfer_to_human_agents", {"summary": "I cannot fix the issue."}),)
ABROAD = "abroad"


def plain(*names: str) -> Calls:
    """Return calls without arguments."""
    return tuple((name, {}) for name in names)


@dataclass(frozen=True)
class Sign:
    """A sign in the answer to a check, and the calls that help."""

    shown: Callable[[str, str], bool]
    """Whether the answer (first) shows it, given the ticket."""
    helps: Calls


@dataclass(frozen=True)
class Look:
    """A check and its signs."""

    name: str
    check: Calls
    signs: tuple[Sign, ...]


def _has(text: str) -> Callable[[str, str], bool]:
    return lambda answer, _: text in answer


def _lacks(text: str) -> Callable[[str, str], bool]:
    return lambda answer, _: text not in answer


def _abroad(text: str) -> Callable[[str, str], bool]:
    return lambda answer, ticket: ABROAD in ticket and text in answer


def _used_up(answer: str, _: str) -> bool:
    found = re.search(
        r'"data_used_gb": "?([\d.]+)"?, "data_limit_gb": "?([\d.]+)"?, "data_refueling_gb": "?([\d.]+)', answer
    )
    return found is not None and float(found[1]) >= float(found[2]) + float(found[3])


def is_locked(answer: str) -> bool:
    """Return whether an answer of `check_sim_status` shows a locked card, which no tool unlocks."""
    return "locked" in answer


def is_suspended(answer: str) -> bool:
    """Return whether an answer of `get_details_by_id` shows a suspended line."""
    return '"Suspended"' in answer


def has_ended(answer: str) -> bool:
    """Return whether an answer of `get_details_by_id` shows a contract that has ended."""
    found = re.search(r'"contract_end_date": "(\d{4}-\d\d-\d\d)"', answer)
    return found is not None and datetime.date.fromisoformat(found[1]) < TODAY


def overdue_bill(answer: str) -> str:
    """Return the id of the first overdue bill in an answer of `get_bills_for_customer`; empty if there is none."""
    try:
        bills = json.loads(answer)
    except ValueError:
        return ""
    return next((bill["bill_id"] for bill in bills if bill["status"] == "Overdue"), "")


def paying(bill_id: str) -> Calls:
    """Return the calls by which an overdue bill is paid and the line resumed."""
    request = ("send_payment_request", {**CUSTOMER, "bill_id": bill_id})
    return (request, *plain("check_payment_request", "make_payment"), ("resume_line", LINE), *plain("reboot_device"))


SIM = Look("sim", plain("check_sim_status"), (Sign(_has("No SIM"), plain("reseat_sim_card")),))
NETWORK = Look(
    "network",
    plain("check_network_status"),
    (
        Sign(_has("Airplane Mode: ON"), plain("toggle_airplane_mode")),
        Sign(_has("Mobile Data Enabled: No"), plain("toggle_data")),
        Sign(_abroad("Data Roaming Enabled: No"), plain("toggle_roaming")),
    ),
)
AIRPLANE = Look("network", NETWORK.check, NETWORK.signs[:1])
LINE_ROAMING = Look(
    "line",
    (("get_details_by_id", {"id": "L1002"}),),
    (Sign(_abroad('"roaming_enabled": false'), (("enable_roaming", LINE),)),),
)
PREFERENCE = Look(
    "preference",
    plain("check_network_mode_preference"),
    (Sign(_lacks("4g_5g_preferred"), (("set_network_mode_preference", {"mode": "4g_5g_preferred"}),)),),
)
APN = Look(
    "apn",
    plain("check_apn_settings"),
    (
        Sign(
            lambda answer, _: "Name: internet" not in answer or "messages): Not Set" in answer,
            plain("reset_apn_settings", "reboot_device"),
        ),
    ),
)
SAVER = Look(
    "saver", plain("check_data_restriction_status"), (Sign(_has("mode is ON"), plain("toggle_data_saver_mode")),)
)
VPN = Look("vpn", plain("check_vpn_status"), (Sign(_has("ON and connected"), plain("disconnect_vpn")),))
USAGE = Look("usage", (("get_data_usage", LINE),), (Sign(_used_up, (("refuel_data", {**LINE, "gb_amount": 2.0}),)),))
CALLING = Look("calling", plain("check_wifi_calling_status"), (Sign(_has("turned ON"), plain("toggle_wifi_calling")),))
PERMISSIONS = Look(
    "permissions",
    (("check_app_permissions", {"app_name": "messaging"}),),
    tuple(
        Sign(_lacks(name), (("grant_app_permission", {"app_name": "messaging", "permission": name}),))
        for name in ("storage", "sms")
    ),
)


@dataclass(frozen=True)
class Procedure:
    """The looks that one kind of ticket asks for, in order, and the check that shows the issue gone."""

    looks: tuple[Look, ...]
    last: Calls


SERVICE = Procedure((SIM, LINE_ROAMING, AIRPLANE, APN), plain("check_status_bar"))
MOBILE_DATA = Procedure((NETWORK, LINE_ROAMING, PREFERENCE, SAVER, VPN, USAGE), plain("run_speed_test"))
MMS = Procedure((SIM, NETWORK, LINE_ROAMING, PREFERENCE, APN, USAGE, CALLING, PERMISSIONS), plain("can_send_mms"))


def procedure_for(ticket: str) -> Procedure:
    """Return the procedure for a ticket."""
    return MMS if "MMS" in ticket else MOBILE_DATA if "mobile data" in ticket else SERVICE
