"""Tools around training: problem sets, rollouts, their viewer, evaluation, planning."""
