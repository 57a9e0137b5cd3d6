//! Manual pages, shell completions and the text at the end of `--help`, generated from the
//! definition of a program's command line.
//!
//! ```text
//! clap's Command ──┬─► completions ─► bash, zsh, fish …
//!                  └─► one page for the program and for each subcommand ◄── Section (examples, exit status …) ─► --help
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::io;
use std::iter;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// A section of a manual page that is not generated from options: a list of terms and explanations.
/// A term may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Heading, in sentence case.
    pub title: &'static str,
    /// Terms with their explanations.
    pub items: &'static [(&'static str, &'static str)],
}

/// Maximum length, in characters, of a term that is followed by its explanation on the same line.
const SHORT_TERM: usize = 4;

/// Formats the sections that are printed at the end of `--help`.
pub fn below_help(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{}:\n", section.title);
        for (term, explanation) in section.items {
            text += &match term.chars().count() {
                0 => format!("  {explanation}\n"),
                1..=SHORT_TERM => format!("  {term:SHORT_TERM$} {explanation}\n"),
                _ => format!("  {term}\n      {explanation}\n"),
            };
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Formats an error with its causes. A cause that the text already contains is not repeated.
pub fn error_with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Returns clap's message about invalid arguments, without the "error:" prefix.
pub fn wrong_arguments(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}

/// Returns the completion script of a program for a shell. The script offers everything that
/// `--help` shows, and no hidden subcommands.
pub fn completions(command: &Command, shell: Shell) -> Vec<u8> {
    let mut command = escape_hidden(command);
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// Returns a copy of a command without its hidden subcommands. The copy keeps every property that
/// completions need. A copy is necessary because clap_complete also offers hidden subcommands, and
/// clap cannot remove a subcommand.
fn escape_hidden(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .propagate_version(command.is_propagate_version_set())
        .disable_help_flag(command.is_disable_help_flag_set())
        .disable_version_flag(command.is_disable_version_flag_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .visible_aliases(command.get_visible_aliases().map(str::to_owned))
        .args(command.get_arguments().cloned())
        .groups(command.get_groups().cloned())
        .subcommands(visible(command).map(escape_hidden));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}

/// Writes the manual pages of a program: one for the program and one for each subcommand. `folder`
/// is created if it does not exist. `date` is printed in the footers. `sections` returns the
/// sections for the page of a subcommand. The argument of `sections` contains the words of the
/// subcommand, without the program's name.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write_manual(
    command: Command,
    folder: &Path,
    date: &str,
    sections: fn(&str) -> Vec<Section>,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let version = command.get_version().unwrap_or_default();
    let source = format!("{} {version}", command.get_name());
    Manual { folder, date, source, sections }.write(&command, None)
}

struct Manual<'a> {
    folder: &'a Path,
    date: &'a str,
    source: String,
    sections: fn(&str) -> Vec<Section>,
}

impl Manual<'_> {
    /// Writes the manual pages of a command and its subcommands.
    fn write(&self, command: &Command, parent: Option<&str>) -> io::Result<()> {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        for subcommand in visible(command) {
            self.write(subcommand, Some(&name))?;
        }
        fs::write(self.folder.join(format!("{name}.1")), self.page(command, &name, parent)?)
    }

    fn page(&self, command: &Command, name: &str, parent: Option<&str>) -> io::Result<Vec<u8>> {
        let man = Man::new(command.clone())
            .title(name)
            .date(self.date)
            .source(&*self.source)
            .manual("User commands");
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if visible(command).next().is_some() {
            man.render_subcommands_section(&mut page)?;
        }
        let called = command.get_bin_name().unwrap_or(name);
        let words = called.split_once(' ').map_or("", |(_, words)| words);
        let mut rest = Roff::new();
        for section in (self.sections)(words) {
            rest.control("SH", [section.title.to_uppercase().as_str()]);
            for (term, explanation) in section.items {
                if !term.is_empty() {
                    rest.control("TP", []);
                    rest.text([bold(*term)]);
                }
                rest.text([roman(*explanation)]);
            }
        }
        let related: Vec<String> = parent
            .into_iter()
            .map(str::to_owned)
            .chain(visible(command).map(|sub| display_name(sub, name)))
            .collect();
        if !related.is_empty() {
            rest.control("SH", ["SEE ALSO"]);
            rest.text([roman(
                related.iter().map(|page| format!("{page}(1)")).collect::<Vec<_>>().join(", "),
            )]);
        }
        rest.to_writer(&mut page)?;
        Ok(page)
    }
}

/// Returns the subcommands shown by `--help`.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set())
}

fn display_name(subcommand: &Command, parent: &str) -> String {
    subcommand
        .get_display_name()
        .map_or_else(|| format!("{parent}-{}", subcommand.get_name()), str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn program() -> Command {
        let one = Command::new("one")
            .about("Does one")
            .arg(Arg::new("rate").long("rate").help_heading("Rate"));
        let hidden = Command::new("hidden").hide(true);
        Command::new("program")
            .version("1.2")
            .about("Does things")
            .subcommand(one)
            .subcommand(hidden)
    }

    fn sections(of: &str) -> Vec<Section> {
        let examples: &[(&str, &str)] = if of == "one" {
            &[("program one --rate 1", "Does one slowly.")]
        } else {
            &[("0", "done")]
        };
        vec![Section { title: "Examples", items: examples }]
    }

    #[test]
    fn each_visible_command_gets_a_page_with_its_sections() {
        let folder = tempfile::tempdir().unwrap();
        write_manual(program(), folder.path(), "2026-01-02", sections).unwrap();
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["program-one.1", "program.1"]);
        let page = fs::read_to_string(folder.path().join("program-one.1")).unwrap();
        for text in [
            ".TH program",
            "2026-01-02",
            "program 1.2",
            ".SH RATE",
            "\\-\\-rate",
            ".SH EXAMPLES",
            "slowly",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        let page = fs::read_to_string(folder.path().join("program.1")).unwrap();
        assert!(page.contains("program\\-one(1)") && !page.contains("hidden"), "{page}");
    }

    #[test]
    fn completions_offer_what_help_shows() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(&program(), shell)).unwrap();
            assert!(!script.contains("hidden"), "{shell}: {script}");
            for offered in ["one", "rate", "help", "version"] {
                assert!(script.contains(offered), "{shell}: no {offered}: {script}");
            }
        }
        let nested = Command::new("outer").subcommand(program());
        let script = String::from_utf8(completions(&nested, Shell::Bash)).unwrap();
        assert!(script.contains("one") && !script.contains("hidden"), "{script}");
    }

    #[test]
    fn sections_below_help() {
        let items = &[("", "Plain."), ("12", "short"), ("longer", "below")];
        let text = below_help(&[
            Section { title: "A", items },
            Section { title: "B", items: &[("x", "y")] },
        ]);
        assert_eq!(text, "A:\n  Plain.\n  12   short\n  longer\n      below\n\nB:\n  x    y");
    }
}
