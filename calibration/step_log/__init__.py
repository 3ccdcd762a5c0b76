"""Profiles from the steps that an engine logged while it served.

Whole steps of many shapes are all that a log has: a sum of straight lines is fitted to them, and
what it says of each part of a step becomes the tables of a profile.
"""

from calibration.step_log.fit import TimedStep, fit_profile, lost_share

__all__ = ["TimedStep", "fit_profile", "lost_share"]
