"""Policies that Lagoon builds by itself, and the checks that a model folder has to pass."""

from workers.models.folders import ModelError, build, check_folder, model_folder

__all__ = ["ModelError", "build", "check_folder", "model_folder"]
