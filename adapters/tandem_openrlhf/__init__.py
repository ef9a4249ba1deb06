"""The OpenRLHF adapter: adds tandem authorship to OpenRLHF's trainers, without a fork."""
