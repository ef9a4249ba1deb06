"""Model Runner V2: tensors on the device, without host synchronisation."""
