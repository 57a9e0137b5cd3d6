//! Manual pages and completions, which the programs generate.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::files::LIMIT;
use crate::process::output;

/// Returns the shells, each with the path under which it finds the completions of a program.
fn shells(program: &str) -> [(&'static str, String); 3] {
    [
        ("bash", format!("completions/bash/{program}")),
        ("zsh", format!("completions/zsh/_{program}")),
        ("fish", format!("completions/fish/{program}.fish")),
    ]
}

/// Makes a program write its pages into `folder/man1` and its completions into `folder/completions`.
pub(super) fn write(program: &Path, name: &str, folder: &Path, date: &str) -> Result<()> {
    let manual = folder.join("man1").to_string_lossy().into_owned();
    output(program, &["manual", &manual, "--date", date], LIMIT)?;
    for (shell, file) in shells(name) {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, output(program, &["completions", shell], LIMIT)?)?;
    }
    Ok(())
}
