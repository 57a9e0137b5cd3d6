//! Reports about system limits on memory, by the command `check` and at the start of the server.

use std::path::Path;
use std::process::{Command, Output};

/// Runs dns64d with an address space of `kibibytes` KiB.
fn run_within(kibibytes: u64, arguments: &[&str]) -> Output {
    let script = format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dns64d")]).args(arguments);
    command.output().unwrap()
}

fn configuration(folder: &Path, threads: usize, mebibytes: u64) -> String {
    let text = format!(
        "listen = ['127.0.0.1:0']\nthreads = {threads}\n[cache]\nmebibytes = {mebibytes}\n\
         [[upstream]]\naddress = '192.0.2.1'\n"
    );
    let path = folder.join("dns64d.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn check_names_the_limit_that_reduces_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = configuration(folder.path(), 1, 900);
    let checked = run_within(400_000, &["check", "--config", &path]);
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.success(), "{said}");
    for words in ["warning: the cache is reduced", "from 900 MiB", "RLIMIT_AS", "to 390 MiB"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_start_without_enough_memory_reports_the_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = configuration(folder.path(), 64, 1);
    for (arguments, status) in [(&["check", "--config", &path][..], 2), (&["--config", &path], 4)] {
        let refused = run_within(400_000, arguments);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(status), "{said}");
        let needed = said.split_once("dns64d with 64 workers needs ").expect(&said).1;
        let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
        assert!(needed > 390, "{said}");
        let enough = run_within((needed + 1) << 10, &["check", "--config", &path]);
        assert!(enough.status.success(), "{enough:?}");
    }
}
