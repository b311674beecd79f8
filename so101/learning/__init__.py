"""Learning from LeRobot datasets: the embedded policy, and launching the fine-tune of GR00T."""
