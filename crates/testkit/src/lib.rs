//! Fake server, virtual clock, recorded exchanges. Never here: anything a release binary needs.

pub mod fake;

pub mod latency_server;
