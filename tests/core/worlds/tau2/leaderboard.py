"""The package's own leaderboard tools, for the tests: run by τ²-bench's interpreter, in the repository's root.

    PYTHON -m tests.core.worlds.tau2.leaderboard RESULTS FOLDER OTHER-PACKAGES

OTHER-PACKAGES has pandas and rich, which the tools need and no episode does; it comes last, so that all else is the
interpreter's own. The tools ask for names and addresses, and are answered from the standard input.
"""

import sys


def main(results: str, folder: str, packages: str) -> None:
    from tasks.core.worlds.tau2.inside.package import absent

    sys.path.append(packages)
    absent(needed=("pandas",))
    from tau2.scripts.leaderboard.prepare_submission import prepare_submission, validate_submission

    prepare_submission([results], folder)
    validate_submission(folder)


main(*sys.argv[1:])
