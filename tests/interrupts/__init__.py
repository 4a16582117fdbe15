"""The exception of a signal handler, at each place of each public call at which Python may raise it."""
