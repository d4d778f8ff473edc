//! The `meshwright` command.
fn main() {}
