//! Licence notices for redistribution: the texts for our programs and for the crates that are linked into them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{host, root};

/// Returns the file `copyright` of a Debian package, without the header that cargo-deb adds.
pub(super) fn copyright() -> Result<String> {
    let mit = fs::read_to_string(root().join("LICENSE-MIT"))?;
    Ok(format!(
        "{mit}\nOr, at your option, the Apache License, Version 2.0; on Debian systems its text is \
         in\n/usr/share/common-licenses/Apache-2.0.\n\nThe licences of the linked packages are in \
         THIRD-PARTY in the same folder.\n"
    ))
}

/// Returns a list of the packages that are linked into the programs, and the texts of their licences. Each text occurs
/// once.
pub(super) fn third_party() -> Result<String> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let linked = linked(&metadata)?;
    let mut text = String::from("Packages that are linked into dns64bench and dns64d.\n\n");
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| linked.contains(id)))
    {
        // Packages without a source are ours.
        if package["source"].is_null() {
            continue;
        }
        let word = |key: &str| package[key].as_str().unwrap_or("unknown");
        let name = format!("{} {}", word("name"), word("version"));
        let _ = writeln!(text, "{name}: {}", word("license"));
        let folder = Path::new(word("manifest_path")).parent().unwrap_or(Path::new("/"));
        for licence in licences(folder)? {
            users.entry(licence).or_default().push(name.clone());
        }
    }
    for (licence, users) in users {
        let _ = write!(text, "\n{}\n{}:\n\n{}\n", "=".repeat(80), users.join(", "), licence.trim());
    }
    Ok(text)
}

fn metadata() -> Result<Value> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host()?])
        .current_dir(root());
    let ran = command.output().context("cannot run cargo metadata")?;
    ensure!(ran.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(serde_json::from_slice(&ran.stdout)?)
}

/// Returns the ids of the packages that our programs contain. Tests and build scripts need no notice.
fn linked(metadata: &Value) -> Result<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata: no nodes")?;
    let by_id: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_ours =
        |id: &&str| ["/crates/dns64bench#", "/crates/dns64#"].iter().any(|path| id.contains(path));
    let mut open: Vec<&str> = by_id.keys().copied().filter(is_ours).collect();
    ensure!(open.len() == 2, "cargo metadata: our crates are not found");
    let mut linked = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !linked.insert(id) {
            continue;
        }
        let dependencies =
            by_id.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let is_normal = |dependency: &&Value| {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        };
        open.extend(
            dependencies.filter(is_normal).filter_map(|dependency| dependency["pkg"].as_str()),
        );
    }
    Ok(linked)
}

/// Returns the texts of licences in a package's folder.
fn licences(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if ["LICEN", "COPY", "NOTICE", "UNLICEN"].iter().any(|begin| name.starts_with(begin))
            && path.is_file()
        {
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_list_linked_packages_only() {
        let text = third_party().unwrap();
        for name in ["clap 4", "domain 0", "tokio 1"] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} is missing");
        }
        // These packages are dependencies of tests and of xtask only.
        assert!(!text.contains("\nproptest ") && !text.contains("\njsonschema "));
        assert!(text.contains("Permission is hereby granted"));
    }
}
