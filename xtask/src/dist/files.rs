//! Names and files that all packages share.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process::{output, root};

/// Version of the workspace, which is also the version of xtask.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Programs, in the order in which all lists show them.
pub(super) const PROGRAMS: [&str; 2] = ["dns64bench", "dns64d"];

/// Time limit of all tools that run here, except compilers.
pub(super) const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// The shipped configuration of dns64d.
const EXAMPLE: &str = "dist/dns64d.example.toml";

/// Schema for completion in editors, in the repository.
pub(super) const SCHEMA: &str = "schemas/dns64d.schema.json";

/// Returns the shipped configuration. Its first line refers to the installed schema instead of the schema in the
/// repository. If `schema` is `None`, the line is omitted.
pub(super) fn example(schema: Option<&str>) -> Result<String> {
    let text = fs::read_to_string(root().join(EXAMPLE))?;
    let (first, rest) = text.split_once('\n').context("the example is empty")?;
    ensure!(first.starts_with("#:schema "), "{EXAMPLE} does not begin with its schema");
    Ok(schema.map(|schema| format!("#:schema {schema}\n")).unwrap_or_default() + rest)
}

/// Copies a program without its symbols.
pub(super) fn strip(program: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("it is in the stage")?)?;
    let [from, to] = [program, to].map(|path| path.to_string_lossy().into_owned());
    output("strip", &["--strip-all", "-o", &to, &from], LIMIT)
        .context("strip is in Debian's package binutils")?;
    println!(
        "{:>11}  {from}\n{:>11}  stripped",
        fs::metadata(&from)?.len(),
        fs::metadata(&to)?.len()
    );
    Ok(())
}

/// Returns the maintainer of the packages: `DEBFULLNAME` and `DEBEMAIL`, as for Debian's tools, or a generic name and
/// address.
pub(super) fn maintainer() -> String {
    let variable =
        |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let name = variable("DEBFULLNAME", "dns64bench maintainers");
    format!("{name} <{}>", variable("DEBEMAIL", "maintainers@dns64bench.invalid"))
}
