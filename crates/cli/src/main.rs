//! Flags, live view, exit codes.

fn main() {}
