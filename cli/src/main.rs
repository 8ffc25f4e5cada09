//! See the workspace README.
fn main() {}
