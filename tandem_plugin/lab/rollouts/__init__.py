"""Files of rollouts: reading them, writing them whole, and the engine that fills them."""
