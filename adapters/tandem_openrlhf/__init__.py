"""The OpenRLHF adapter: brings tandem authorship into OpenRLHF's trainers, without a fork."""
