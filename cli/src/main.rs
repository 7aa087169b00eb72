//! The ringccl command.
fn main() {}
