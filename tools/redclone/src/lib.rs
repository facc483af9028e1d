//! `redclone`: the cloner as a command.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod arguments;
mod push;
mod run;
mod serve;

use arguments::{CloneArguments, Command, SecretOptions};
use clap::CommandFactory;
use command_line::{USAGE_EXIT_CODE, generate_for};
use redrt_wire::secret::Secret;
use say::Console;
use std::ffi::OsString;

/// Variable with the secret, if no file is given.
const SECRET_VARIABLE: &str = "REDCLONE_SECRET";

/// Runs the command. Returns the exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    let console = Console::new("redclone");
    let arguments = match command_line::parse_from::<CloneArguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let result = match arguments.command {
        Command::Run(options) => run::run(&options, &console),
        Command::Load(options) => run::load(&options, &console),
        Command::Serve(options) => serve::serve(&options, &console),
        Command::Receive(options) => serve::receive(&options),
        Command::Push(options) => push::push(&options, &console),
        Command::Save(options) => push::save(&options, &console),
        Command::Secret => Secret::generate()
            .map_err(Into::into)
            .and_then(|secret| print(format!("{}\n", secret.to_text()).as_bytes())),
        Command::Generate { what } => print(&generate_for(CloneArguments::command(), "redclone", what)),
    };
    result.unwrap_or_else(|error| {
        if let Some(error) = error.downcast_ref::<cloner::Error>() {
            console.error(&error.line());
            return error.phase().exit_code();
        }
        console.error(&format!("{error:#}"));
        if error.is::<UsageError>() { USAGE_EXIT_CODE } else { 1 }
    })
}

/// A command line that cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

fn print(text: &[u8]) -> anyhow::Result<i32> {
    say::text(text)?;
    Ok(0)
}

/// The secret that both sides share. It is never an argument, which every user of the host could read.
fn secret(options: &SecretOptions) -> anyhow::Result<Secret> {
    if let Some(path) = &options.secret_file {
        return secret_file::read(path).map_err(|error| UsageError(format!("{error:#}")).into());
    }
    let Ok(text) = std::env::var(SECRET_VARIABLE) else {
        return Err(UsageError(format!("a secret is needed: --secret-file or {SECRET_VARIABLE}")).into());
    };
    Secret::from_text(text.trim()).ok_or_else(|| {
        UsageError(format!("{SECRET_VARIABLE} does not hold 64 hexadecimal digits; redclone secret makes some")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CloneArguments::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_exit_code_2() {
        for words in
            [&["redclone"][..], &["redclone", "push", "x", "y"], &["redclone", "push", "1", "h:1", "--streams", "0"]]
        {
            assert_eq!(main(words.iter().map(OsString::from).collect()), 2, "{words:?}");
        }
    }
}
