//! Command line of teatime.
fn main() {}
