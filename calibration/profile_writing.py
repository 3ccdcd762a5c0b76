"""Writes profile files: whole or not at all."""

import json
from pathlib import Path

from calibration.errors import CalibrationError
from calibration.profile_format import Profile


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile under a temporary name, then rename it.

    Raises:
        CalibrationError: the file can't be written.
    """
    text = json.dumps(profile.to_json(), indent=1) + "\n"
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CalibrationError(f"{file}: can't be written: {error}") from error
