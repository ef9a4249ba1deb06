"""The checks of ``make test-gpu``, without pytest: engines, trainers, what is held of them."""
