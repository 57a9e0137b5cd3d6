//! `qemu`: runs the Measurer, dns64d and AuthDNS with zero-copy AF_XDP in a virtual machine, on emulated network cards.
//!
//! ```text
//! mmdebstrap ─► chroot with QEMU and a kernel ─► RAM disk with our programs ─► guest.sh ─► steps ─► checks
//! ```
//!
//! QEMU emulates the CPU too, so that no KVM is needed. The guest is too slow for statements about speed.

mod ramdisk;
mod steps;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use self::steps::{CHECKS, Steps};
use crate::chroot::{self, Chroot, Recipe};
use crate::process::{Build, find, run};

/// Exit status if the guest cannot be started here.
const NOT_RUN: u8 = 3;
/// Time limit of the guest.
const LIMIT: Duration = Duration::from_secs(600);
/// Number of the last console lines that are printed if a check fails.
const CONSOLE_LINES: usize = 40;

/// Chroot with QEMU, and the kernel of backports, because zero-copy in `igb` needs Linux 6.14.
const CHROOT: Recipe<'_> = Recipe {
    name: "qemu",
    suite: "trixie",
    packages: &["qemu-system-x86", "busybox-static", "kmod"],
    hook: include_str!("qemu/kernel.sh"),
};
/// Programs of this host that the guest uses, in addition to dns64bench and dns64d.
const PROGRAMS: [&str; 2] = ["ip", "ethtool"];

/// Options of a virtio device. Its driver supports zero-copy only with an IOMMU platform.
const VIRTIO: &str = "virtio-net-pci,iommu_platform=on,disable-legacy=on";
/// The guest's network cards, from eth0: the number of the hub that joins a card with another one, and its type.
const CARDS: [(u8, &str); 4] = [(1, "igb"), (1, "igb"), (2, VIRTIO), (2, VIRTIO)];

#[derive(Debug, Args)]
pub(crate) struct Qemu {
    /// Recreate the chroot with QEMU and the kernel, even if it was created this week
    #[arg(long)]
    fresh: bool,
}

impl Qemu {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let missing = PROGRAMS.iter().find(|name| find(name).is_none());
        let missing = missing.map(|name| format!("not found: {name}"));
        if let Some(reason) = chroot::not_run_because().map(str::to_owned).or(missing) {
            return Ok(not_run(&reason));
        }
        let work = tempfile::tempdir()?;
        let chroot = match Chroot::of(&CHROOT, work.path(), self.fresh) {
            Ok(chroot) => chroot,
            Err(error) => return Ok(not_run(&format!("no chroot: {error:#}"))),
        };
        let ours = Build::Dev.dns64bench()?;
        let mut programs = vec![ours.with_file_name("dns64d"), ours];
        programs.extend(PROGRAMS.into_iter().filter_map(find));
        let disk = ramdisk::create(chroot.root(), &programs, work.path())?;
        let start = Instant::now();
        let steps = boot(&chroot, &disk, work.path())?;
        let failed = judge(&steps);
        println!("{} checks, {failed} failed, {} s", CHECKS.len(), start.elapsed().as_secs());
        if failed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        print_console(work.path());
        Ok(ExitCode::FAILURE)
    }
}

fn not_run(reason: &str) -> ExitCode {
    println!("qemu: {reason}");
    ExitCode::from(NOT_RUN)
}

/// Runs the guest until it powers off, and returns its steps. After the time limit the steps are incomplete.
fn boot(chroot: &Chroot, disk: &Path, work: &Path) -> Result<Steps> {
    let script = chroot.start_script("qemu-system-x86_64", &work.join("qemu.sh"))?;
    let ran = run(script, &arguments(disk, work), LIMIT)?;
    ensure!(!ran.stdout.is_empty(), "QEMU ended with {:?}: {}", ran.status, ran.stderr.trim());
    Ok(Steps::of(&ran.stdout))
}

/// Returns the arguments of QEMU. The first serial port is its standard output, and the second is the console.
fn arguments(disk: &Path, work: &Path) -> Vec<String> {
    let machine = "-machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 -nodefaults -no-reboot -display none \
        -kernel /vmlinuz -serial stdio";
    let mut words: Vec<String> = machine.split_whitespace().map(str::to_owned).collect();
    let console = format!("file:{}", console(work).display());
    words.extend(["-serial".to_owned(), console]);
    words.extend(["-append".to_owned(), "console=ttyS1 quiet panic=-1 net.ifnames=0".to_owned()]);
    words.extend(["-initrd".to_owned(), disk.display().to_string()]);
    for (at, (hub, card)) in CARDS.iter().enumerate() {
        // Without a root port for each card, there is no room for the virtual functions of igb.
        words.extend([
            "-netdev".to_owned(),
            format!("hubport,hubid={hub},id=net{at}"),
            "-device".to_owned(),
            format!("pcie-root-port,id=port{at},chassis={at}"),
            "-device".to_owned(),
            format!("{card},netdev=net{at},bus=port{at},romfile="),
        ]);
    }
    words
}

fn console(work: &Path) -> std::path::PathBuf {
    work.join("console")
}

/// Prints a line for each check, and returns the number of failed checks.
fn judge(steps: &Steps) -> usize {
    let mut failed = 0;
    for (name, check) in CHECKS {
        match check(steps) {
            Ok(found) => println!("ok      {name}: {found}"),
            Err(error) => {
                failed += 1;
                println!("FAILED  {name}: {error:#}");
            }
        }
    }
    failed
}

/// Prints the end of the guest's console.
fn print_console(work: &Path) {
    let text = std::fs::read(console(work)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    println!("\nThe end of the guest's console:");
    for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
        println!("{line}");
    }
}
