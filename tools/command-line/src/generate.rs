//! The manual page and shell completions, made from the same description as `--help`.

use clap::ValueEnum;
use clap_complete::Shell;

/// What `--generate` prints.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generate {
    /// The manual page.
    Man,
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
}

/// Makes one of them for a program.
#[must_use]
pub fn generate_for(mut command: clap::Command, name: &str, what: Generate) -> Vec<u8> {
    let mut out = Vec::new();
    let shell = match what {
        Generate::Man => {
            clap_mangen::Man::new(command).render(&mut out).expect("writing to memory does not fail");
            return out;
        }
        Generate::Bash => Shell::Bash,
        Generate::Zsh => Shell::Zsh,
        Generate::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, name, &mut out);
    out
}
