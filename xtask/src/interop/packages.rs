//! Tests of the packages and container images of the programs under test. Packages are installed into a separate root,
//! used there, and removed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::dns64d::NAME;
use super::harness::{A, AAAA, Bench, LIMIT, wait_for};
use super::tally::Skipped;
use super::test::{Resource, Test};
use crate::dist::{Builder, STATIC_PROGRAMS, Stage, cargo_deb_is_installed, debs};
use crate::packages::can_install;
use crate::process::{Build, Server, find, free_port, root, run};

const NEEDS: &[&str] = &["dpkg-shlibdeps", "strip", "unshare", "man", "script", "ip"];

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "Debian packages on this system: install, use, remove completely",
        NEEDS,
        over_this_system,
    )
    .holding(Resource::Stage),
    Test::new("Debian packages on this system: quickstart", NEEDS, quickstart)
        .holding(Resource::Stage)
        .retried(
            "quickstart waits six seconds for its servers, which may not be enough on a busy \
            machine",
        ),
    Test::new("Debian packages in a fresh Debian without anything else", NEEDS, in_a_fresh_root)
        .holding(Resource::Stage)
        .downloading(),
    Test::new("container images without root, and without anything else", &[], images),
];

/// Builds both packages of the programs under test in a folder, twice. The results of both builds must be identical.
fn packages(bench: &Bench, name: &str) -> Result<PathBuf> {
    if !can_install() {
        return Err(Skipped("it needs root and Debian".into()).into());
    }
    if !cargo_deb_is_installed() {
        return Err(
            Skipped("cargo-deb is not installed (cargo xtask dist installs it)".into()).into()
        );
    }
    let programs = Path::new(bench.program()).parent().context("the programs have a folder")?;
    let (folder, again) =
        (bench.folder.path().join(name), bench.folder.path().join(format!("{name}-again")));
    for to in [&folder, &again] {
        fs::create_dir_all(to)?;
        let made = debs(&Stage::make(programs)?, to, Build::Dev)?;
        ensure!(made.len() == 2, "{made:?}");
    }
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name();
        let same = fs::read(folder.join(&name))? == fs::read(again.join(&name))?;
        ensure!(same, "{} differs from build to build", name.display());
    }
    Ok(folder)
}

/// Paths that change when any package is installed and removed: logs, caches, and dpkg's state. Users remain, because
/// their files may outlive a package.
const OF_THE_SYSTEM: [&str; 9] = [
    "/var/log",
    "/var/cache",
    "/var/lib/dpkg",
    "/tmp",
    "/run",
    "/root",
    "/etc/.pwd.lock",
    "/etc/passwd-",
    "/etc/group-",
];
const SHADOWS: [&str; 2] = ["/etc/shadow-", "/etc/gshadow-"];

/// Installs, uses and removes the packages in a folder. `place` is the root in which this is done, or "over". `also` is
/// "quickstart" or empty.
fn try_in(packages: &Path, place: &str, also: &str) -> Result<()> {
    let script = root().join("xtask/src/interop/packages/root.sh");
    let [packages, script] =
        [packages, script.as_path()].map(|path| path.to_string_lossy().into_owned());
    let namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child"];
    let ran = run(
        "unshare",
        &[&namespaces[..], &["sh", &script, &packages, place, also]].concat(),
        5 * LIMIT,
    )?;
    ensure!(ran.status == Some(0), "status {:?}\n{}\n{}", ran.status, ran.stdout, ran.stderr);
    ensure!(
        ran.stdout.contains(&format!("step: {also}")) && ran.stdout.contains("\ndone"),
        "{}",
        ran.stdout
    );
    let allowed =
        |path: &&str| OF_THE_SYSTEM.iter().chain(&SHADOWS).any(|prefix| path.starts_with(prefix));
    let left: Vec<&str> = ran
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("left: "))
        .filter(|path| !allowed(path))
        .collect();
    ensure!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    Ok(())
}

fn over_this_system(bench: &Bench) -> Result<()> {
    try_in(&packages(bench, "debs-over")?, "over", "")
}

fn quickstart(bench: &Bench) -> Result<()> {
    try_in(&packages(bench, "debs-quickstart")?, "over", "quickstart")
}

fn in_a_fresh_root(bench: &Bench) -> Result<()> {
    if find("mmdebstrap").is_none() {
        return Err(Skipped("not found: mmdebstrap".into()).into());
    }
    let packages = packages(bench, "debs-fresh")?;
    let fresh = bench.path("fresh");
    let script = root().join("xtask/src/interop/packages/fresh.sh").to_string_lossy().into_owned();
    let ran = run("sh", &[&script, &fresh], 3 * LIMIT)?;
    if ran.status != Some(0) {
        let last = ran.stderr.lines().last().unwrap_or_default().to_owned();
        return Err(Skipped(format!("no fresh Debian could be made: {last}")).into());
    }
    try_in(&packages, &fresh, "quickstart")
}

/// Both programs must answer queries if they run from their images, as the user nobody.
fn images(bench: &Bench) -> Result<()> {
    let programs = root().join(STATIC_PROGRAMS);
    if !programs.join("dns64bench").is_file() {
        return Err(
            Skipped("no static programs (cargo xtask dist --images builds them)".into()).into()
        );
    }
    let context = bench.folder.path().join("images");
    fs::create_dir_all(&context)?;
    let (upstream, port) = (free_port()?, free_port()?);
    fs::copy(bench.dns64d_config(port, upstream)?, context.join("dns64d.toml"))?;
    for program in ["dns64bench", "dns64d"] {
        fs::copy(programs.join(program), context.join(program))?;
    }
    let Some(builder) = Builder::find(&context)? else {
        return Err(Skipped("not found: buildah".into()).into());
    };
    let start = |program: &str, args: &[&str]| {
        builder.build(program, &context)?;
        let container = builder.run(&["from", "--pull-never", program])?;
        let path = format!("/usr/bin/{program}");
        let words = builder.words(&["run", "--isolation", "chroot", container.trim(), "--", &path]);
        Server::start(builder.program(), &[&words[..], args].concat())
    };
    let listen = format!("127.0.0.1:{upstream}");
    let _auth = start("dns64bench", &["auth", "--listen", &listen])?;
    wait_for(&listen, NAME, A)?;
    let _dns64d = start("dns64d", &["--config", "/etc/dns64d/dns64d.toml"])?;
    wait_for(&format!("127.0.0.1:{port}"), NAME, AAAA)?;
    for program in ["/usr/bin/dns64bench", "/usr/bin/dns64d"] {
        let users = users_of(program)?;
        ensure!(users == ["65532"], "{program} runs as {users:?}");
    }
    Ok(())
}

/// Returns the user IDs of the processes that run the program with this path.
fn users_of(program: &str) -> Result<Vec<String>> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let folder = entry?.path();
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        if command.split(|&byte| byte == 0).next() == Some(program.as_bytes()) {
            let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
            let line =
                status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
            users.push(line.split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    Ok(users)
}
