//! A transport that blocks the calling thread: control work, bulk loading, tests.
