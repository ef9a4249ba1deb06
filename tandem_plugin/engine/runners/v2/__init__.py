"""Model Runner V2: tensors on the device, which the host never waits for."""
