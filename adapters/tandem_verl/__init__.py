"""The verl adapter: adds tandem authorship to verl's GRPO, without a fork."""
