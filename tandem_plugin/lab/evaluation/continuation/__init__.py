"""The paper's H_t: whether the junior can go on from where the senior stands, and reaches it."""
