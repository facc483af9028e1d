//! Campaigns of faults.

fn main() {}
