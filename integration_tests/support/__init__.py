"""What the integration tests share: small models made on the spot, references, and runs."""
