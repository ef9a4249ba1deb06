"""How commands read options, print results and fail."""
