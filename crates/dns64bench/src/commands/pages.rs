//! `completions` and `manual`: shell completions and manual pages, generated from the command line definitions.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::schema;
use crate::args::{Arguments, Manual, help};
use crate::output::{Failure, Outcome};

pub(crate) fn completions(shell: Shell) -> Outcome {
    print!("{}", String::from_utf8_lossy(&script(shell)));
    Ok(ExitCode::SUCCESS)
}

/// Returns a completion script. The script also completes values that clap does not check. This program checks such
/// values itself, because its error messages are more helpful.
fn script(shell: Shell) -> Vec<u8> {
    let command = Arguments::command()
        .mut_subcommand("schema", |command| with_names(command, schema::names()))
        .mut_subcommand("lab", |lab| {
            lab.mut_subcommand("exec", |exec| with_names(exec, ["tester", "dut", "auth"]))
        });
    cli::completions(&command, shell)
}

/// Sets the possible values of the argument `name`.
fn with_names<const N: usize>(command: Command, names: [&'static str; N]) -> Command {
    command.mut_args(|arg| if arg.get_id() == "name" { arg.value_parser(names) } else { arg })
}

pub(crate) fn manual(args: &Manual) -> Outcome {
    let written = cli::write_manual(Arguments::command(), &args.folder, &args.date, help::sections);
    let written = written
        .with_context(|| format!("cannot write manual pages into {}", args.folder.display()));
    written.map(|()| ExitCode::SUCCESS).map_err(Failure::environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_offer_the_values_of_arguments() {
        let script = String::from_utf8(script(Shell::Bash)).unwrap();
        for values in [" trial merge search self-test ", " tester dut auth", " smoke compulsory "] {
            assert!(script.contains(values), "{values}");
        }
    }
}
