//! The `meshwright` command: parse, dispatch, exit code. 0 is done, 1 is *no*, 2 is unusable input, 101 is a bug.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main()
}
