//! Threads of dns64bench and dns64d that share the sender's CPU. A sender has real-time priority only if there are no
//! such threads. If there were, a sender with real-time priority would delay AuthDNS, the receiver or a DUT on the same
//! CPU. This delay would count against the DUT.

use std::fs;

use units::CpuId;

/// Process names of the programs that must not share a sender's CPU.
const PROGRAMS: [&str; 2] = ["dns64bench", "dns64d"];
/// Name prefixes of the threads that work during a trial.
const WORKERS: [&str; 5] = ["auth-", "worker-", "send-", "receive-", "reference"];

/// Returns the names of the threads of dns64bench and dns64d that work during a trial and may run on `cpu`, without
/// duplicates. Threads of this process are included.
pub(super) fn sharing_threads(cpu: CpuId) -> Vec<String> {
    let mut names = Vec::new();
    for process in numbered("/proc") {
        let is_ours = process == std::process::id()
            || PROGRAMS.contains(&name_of(&format!("/proc/{process}")).as_str());
        if !is_ours {
            continue;
        }
        let tasks = format!("/proc/{process}/task");
        for task in numbered(&tasks) {
            let (task, mut name) = (format!("{tasks}/{task}"), String::new());
            if may_run(&task, cpu) {
                name = name_of(&task);
            }
            if WORKERS.iter().any(|worker| name.starts_with(worker)) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn numbered(folder: &str) -> impl Iterator<Item = u32> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn name_of(folder: &str) -> String {
    fs::read_to_string(format!("{folder}/comm")).unwrap_or_default().trim().to_owned()
}

fn may_run(task: &str, cpu: CpuId) -> bool {
    let status = fs::read_to_string(format!("{task}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.is_some_and(|list| contains(list.trim(), cpu))
}

/// Returns true if a list in the kernel's format ("0-3,8") contains `cpu`.
fn contains(list: &str, CpuId(cpu): CpuId) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().ok();
        number(first).zip(number(last)).is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::affinity::{allowed_cpus, pin_to};
    use std::sync::mpsc;

    #[test]
    fn the_kernels_lists_of_cpus() {
        for (list, cpu, is_in) in
            [("0-3,8", 8, true), ("0-3,8", 2, true), ("0-3,8", 4, false), ("", 0, false)]
        {
            assert_eq!(contains(list, CpuId(cpu)), is_in, "{list} {cpu}");
        }
    }

    #[test]
    fn a_worker_pinned_to_a_cpu_shares_it() {
        let cpu = allowed_cpus()[0];
        let (pinned, is_pinned) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("auth-test".into()).spawn(move || {
            pin_to(cpu).unwrap();
            pinned.send(()).unwrap();
            let _ = ended.recv();
        });
        is_pinned.recv().unwrap();
        assert!(sharing_threads(cpu).contains(&"auth-test".to_owned()));
        assert!(!sharing_threads(CpuId(100_000)).contains(&"auth-test".to_owned()));
        drop(end);
        worker.unwrap().join().unwrap();
    }
}
