//! The program `teatime`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(teatime_cli::main(std::env::args_os(), true))
}
