"""Roots: AppWorld's data folder, official or authored, verified before anything runs on it."""

from tasks.core.worlds.appworld.root.authored import AuthoringFailed, author_root
from tasks.core.worlds.appworld.root.prepared import PreparedRoot, prepare_root, read_prepared_root
from tasks.core.worlds.appworld.root.verification import RootReport, verify_root

__all__ = [
    "AuthoringFailed",
    "PreparedRoot",
    "RootReport",
    "author_root",
    "prepare_root",
    "read_prepared_root",
    "verify_root",
]
