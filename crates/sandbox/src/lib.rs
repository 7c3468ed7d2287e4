//! Builds (catalogue, fetch, unpack) and sandboxes (init, start, stop, settings, snapshot, cpus, limits). Never here: workloads.
