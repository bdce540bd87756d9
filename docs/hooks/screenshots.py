"""Pictures of the report and of the site, by a headless Chromium (Debian: `apt-get install chromium`).

    python docs/hooks/screenshots.py [--report data/report/index.html] [--site .ci/out/site]

Writes report.png and site_phone.png to docs/pictures, once the site is built and a run has ended.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = (1280, 900), (500, 900)
COLOURS = 128
"""Of a picture: few are needed, and a palette makes it a third as large."""


def browser() -> str:
    """Return the browser's path. Raises SystemExit where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(f"screenshots: none of {', '.join(BROWSERS)} is installed")
    return found


def shoot(page: Path, picture: Path, size: tuple[int, int]) -> None:
    """Write the top of a page to `picture`. Raises SystemExit where there is no page."""
    if not page.exists():
        raise SystemExit(f"screenshots: {page}: missing")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        window = f"--window-size={size[0]},{size[1]}"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            window,
        ]
        command = [browser(), *options, f"--screenshot={shot}", page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        Image.open(shot).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=Path("data/report/index.html"))
    parser.add_argument("--site", type=Path, default=Path(".ci/out/site"))
    arguments = parser.parse_args()
    shoot(arguments.report, PICTURES / "report.png", DESKTOP)
    shoot(arguments.site / "getting_started.html", PICTURES / "site_phone.png", PHONE)


if __name__ == "__main__":
    main()
