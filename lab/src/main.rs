//! topolab: the command line over the library.

use clap::Parser;
use std::process::ExitCode;
use topolab::cli;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("topolab: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}
