//! Developer commands: benchmarks, studies.

fn main() {}
