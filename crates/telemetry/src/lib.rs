//! Samplers: host, server counters, lock waits, storage probe, canary. Never here: load.
