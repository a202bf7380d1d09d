"""What this installation can run: methods, environments, models, metrics, presets, schemas."""
