//! System call filter (seccomp). Calls that a DNS server never needs fail with EPERM.
//!
//! The filter matters most for a server that was started as root and has no key `user` in its configuration. Such a
//! server has no capabilities, but it still owns the files and processes of root.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Rules for forbidden system calls. The key is the number of the call. If the list of rules for a call is empty, the
/// call always fails. Otherwise, the call fails if at least one of its rules applies.
pub(super) type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Numbers of system calls that only newer kernels have. The numbers are the same on all architectures.
const PROCESS_MADVISE: c_long = 440;
const PROCESS_MRELEASE: c_long = 448;
pub(super) const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

/// System calls that start programs, change the system or inspect other processes.
const SYSTEM: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_kexec_file_load,
    libc::SYS_pidfd_getfd,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System calls that change the owner, mode, times or attributes of a file. Landlock does not cover these calls.
const FILES: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

/// Older variants of the system calls in [`FILES`]. Newer architectures do not have them.
#[cfg(target_arch = "x86_64")]
pub(super) const OLD_FILES: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLD_FILES: &[c_long] = &[];

/// System calls that act on other processes of the same user, or on that user's System V and POSIX IPC objects.
const PROCESSES: &[c_long] = &[
    libc::SYS_pidfd_send_signal,
    PROCESS_MADVISE,
    PROCESS_MRELEASE,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// System calls with a process ID as the first argument. They are allowed for the ID of this process, because
/// abort(3) and raise(3) need them. tkill(2) expects a thread ID, and is therefore allowed only for the main thread.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Further system calls whose first argument is a process ID (see [`SIGNALS`]). For these calls, the ID 0 also stands
/// for this process.
const LIMITS: &[c_long] = &[libc::SYS_prlimit64, libc::SYS_sched_setaffinity];

/// Operations of fcntl(2) that make the kernel send signals to a different process: F_SETOWN,
/// F_SETSIG and F_SETOWN_EX.
const SIGNALS_OF_FILES: [u64; 3] = [8, 10, 15];
/// Operations of ioctl(2) that make the kernel send signals to a different process: FIOSETOWN and
/// SIOCSPGRP.
const SIGNALS_OF_SOCKETS: [u64; 2] = [0x8901, 0x8902];

/// Returns the system call rules for a confined server.
///
/// # Errors
/// Returns an error if a rule is invalid. The constants in this module result only in valid rules.
pub(super) fn rules() -> Result<Rules, Error> {
    let own = u64::from(std::process::id());
    let mut rules = always([SYSTEM, FILES, OLD_FILES, PROCESSES].into_iter().flatten());
    for &call in SIGNALS {
        rules.insert(call, vec![rule(0, &SeccompCmpOp::Ne, &[own])?]);
    }
    for &call in LIMITS {
        rules.insert(call, vec![rule(0, &SeccompCmpOp::Ne, &[0, own])?]);
    }
    let is_one_of = |operations: &[u64]| -> Result<Vec<SeccompRule>, Error> {
        operations.iter().map(|&operation| rule(1, &SeccompCmpOp::Eq, &[operation])).collect()
    };
    rules.insert(libc::SYS_fcntl, is_one_of(&SIGNALS_OF_FILES)?);
    rules.insert(libc::SYS_ioctl, is_one_of(&SIGNALS_OF_SOCKETS)?);
    Ok(rules)
}

/// Returns rules under which the given system calls always fail.
pub(super) fn always<'a>(calls: impl IntoIterator<Item = &'a c_long>) -> Rules {
    calls.into_iter().map(|&call| (call, Vec::new())).collect()
}

/// Returns a rule for one argument of a system call, at the position `argument` (0 is the first). The rule applies if
/// the comparison `holds` is true for the argument and each of `values`. With `SeccompCmpOp::Ne`, for example, the rule
/// applies if the argument differs from all `values`.
fn rule(argument: u8, holds: &SeccompCmpOp, values: &[u64]) -> Result<SeccompRule, Error> {
    let condition = |&value: &u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, holds.clone(), value)
    };
    Ok(SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)?)
}

/// Applies the rules to this thread and its future threads. Returns false if the kernel does not
/// support seccomp.
///
/// # Errors
/// Returns an error if the kernel supports seccomp, but rejects the filter.
pub(super) fn forbid(rules: Rules) -> Result<bool, Error> {
    let Ok(arch) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?;
    let program: BpfProgram = filter.try_into()?;
    match seccompiler::apply_filter(&program) {
        Ok(()) => Ok(true),
        // A kernel or a container without seccomp.
        Err(Error::Seccomp(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
