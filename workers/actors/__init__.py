"""Ray actors: the generator and the trainer. Their resources are declared by the driver."""
