"""What people do around training: problem sets, rollouts, their page, evaluation, planning."""
