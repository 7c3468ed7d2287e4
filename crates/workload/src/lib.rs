//! What a session does: built-in workloads, data generation and bulk load, consistency checks. Never here: sockets, timing.
