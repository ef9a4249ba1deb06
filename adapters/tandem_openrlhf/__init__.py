"""The OpenRLHF adapter. Not built yet: importing it does nothing."""
