"""Live control: what people change of a run that goes on, and what became of it."""
