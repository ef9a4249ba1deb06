"""The page that ``tandem view`` writes: rollouts as people read them, coloured by author."""
