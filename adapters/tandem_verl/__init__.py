"""The verl adapter: brings tandem authorship into verl's GRPO, without a fork."""
