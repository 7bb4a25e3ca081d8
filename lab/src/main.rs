//! topolab: the command line over the library.

use clap::Parser;
use std::process::ExitCode;
use topolab::cli;

/// A reader that has seen enough, such as `head`, is no failure of this program: it ends as programs do that SIGPIPE ends, without words.
/// The signal itself stays off, since a guest that is gone closes sockets too.
fn end_quietly_without_a_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>().map(String::as_str).unwrap_or_default();
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            std::process::exit(128 + 13);
        }
        usual(info);
    }));
}

fn main() -> ExitCode {
    end_quietly_without_a_reader();
    match cli::run(cli::Cli::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("topolab: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}
