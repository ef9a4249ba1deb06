"""The study's part on the real stack: verl's own trainer, `tandem eval`, `compare` and `report`."""
