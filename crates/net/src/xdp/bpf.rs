//! The functions of the bpf(2) system call that the filter of AF_XDP sockets needs.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::insn::Insn;

/// Commands of bpf(2) (linux/bpf.h).
#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgramLoad = 5,
    #[cfg(test)]
    ProgramTestRun = 10,
    LinkCreate = 28,
    LinkDetach = 34,
}

/// `BPF_MAP_TYPE_ARRAY`: map from indices to values.
const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_XSKMAP`: map from indices to AF_XDP sockets.
const XSKMAP: u32 = 17;
/// `BPF_F_MMAPABLE`: flag of an array with values that processes can map into their memory (since Linux 5.5).
const MMAPABLE: u32 = 1 << 10;
/// `BPF_PROG_TYPE_XDP`: type of XDP programs.
const PROGRAM_OF_XDP: u32 = 6;
/// `BPF_XDP`: attach type of XDP programs.
const ATTACHED_AS_XDP: u32 = 37;
/// License string, which the kernel checks for GPL compatibility. The program calls no helper that requires the GPL.
const LICENSE: &CStr = c"MIT or Apache-2.0";
/// Size, in octets, of the buffer for the verifier's log about a rejected program.
const LOG: usize = 64 << 10;

/// Attach point of a program: `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// The program runs in the network stack, after the driver. This attach point works with every driver.
    Generic = 1 << 1,
    /// The program runs in the driver.
    Driver = 1 << 2,
}

impl Hook {
    /// Returns the name that ip(8) uses for this attach point.
    pub(super) fn word(self) -> &'static str {
        match self {
            Hook::Generic => "xdpgeneric",
            Hook::Driver => "xdp",
        }
    }
}

/// Map from queue numbers to AF_XDP sockets.
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates a map for `queues` queues.
    ///
    /// # Errors
    /// Returns any error from bpf(2). The error is `PermissionDenied` if the process has neither CAP_BPF nor
    /// CAP_SYS_ADMIN.
    pub(super) fn new(queues: u32) -> io::Result<SocketMap> {
        make_map(XSKMAP, 4, queues, 0).map(SocketMap)
    }

    /// Returns the file descriptor of the map. A BPF program refers to the map by this number.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Inserts the socket of a queue.
    ///
    /// # Errors
    /// Returns any error from bpf(2), for example if the map has no such queue, or the descriptor is not an AF_XDP
    /// socket.
    pub(super) fn insert(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let socket = socket as u32;
        let mut attributes = Attributes {
            map: self.number() as u32,
            padding: 0,
            key: address(&queue),
            value: address(&socket),
            flags: 0,
        };
        // SAFETY: key and value each point to four octets, the map's key and value size, and outlive the call.
        unsafe { call(Command::MapUpdate, &mut attributes) }.map(drop)
    }
}

/// Memory shared between a BPF program and processes.
pub(super) struct BitMap(OwnedFd);

impl BitMap {
    /// Creates a map that contains `octets` octets, all of them zero. A process accesses the octets by mmap(2) of the
    /// map's descriptor.
    ///
    /// # Errors
    /// Returns the same errors as [`SocketMap::new`].
    pub(super) fn new(octets: u32) -> io::Result<BitMap> {
        make_map(ARRAY, octets, 1, MMAPABLE).map(BitMap)
    }

    /// Returns the file descriptor of the map. A BPF program refers to the map by this number.
    pub(super) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for BitMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a map with keys of four octets.
fn make_map(map_type: u32, value_size: u32, max_entries: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    }
    let mut attributes = Attributes { map_type, key_size: 4, value_size, max_entries, flags };
    // SAFETY: the attributes are those of this command, and hold no pointers.
    unsafe { descriptor(Command::MapCreate, &mut attributes) }
}

/// An XDP program that the kernel's verifier has accepted.
pub(super) struct Program(OwnedFd);

impl Program {
    /// Loads a program, which the kernel verifies.
    ///
    /// # Errors
    /// Returns any error from bpf(2). If the verifier rejects the program, the error includes the verifier's log.
    pub(super) fn load(program: &[Insn]) -> io::Result<Program> {
        // The first attempt is without a log, because a log costs time, and the call fails if the log does not fit.
        load(program, &mut []).or_else(|error| {
            let mut log = vec![0_u8; LOG];
            match load(program, &mut log) {
                Ok(program) => Ok(program),
                Err(_) => Err(io::Error::new(error.kind(), with_log(&error, &log))),
            }
        })
    }

    /// Attaches the program to an interface for the lifetime of the returned value. The kernel detaches the program
    /// when the last descriptor of the link is closed, however the process ends.
    ///
    /// # Errors
    /// Returns any error from bpf(2). The error is `EBUSY` if the interface already has a program, and `EOPNOTSUPP` or
    /// `EINVAL` if its driver does not support XDP programs.
    pub(super) fn attach(&self, interface: u32, hook: Hook) -> io::Result<Link> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            attach_type: u32,
            flags: u32,
        }
        let mut attributes = Attributes {
            program: self.0.as_raw_fd() as u32,
            interface,
            attach_type: ATTACHED_AS_XDP,
            flags: hook as u32,
        };
        // SAFETY: the attributes are those of this command, and hold no pointers.
        unsafe { descriptor(Command::LinkCreate, &mut attributes) }.map(Link)
    }
}

/// An XDP program attached to an interface.
pub(super) struct Link(OwnedFd);

impl Drop for Link {
    /// Detaches the program explicitly. Closing the descriptor may not be enough, because another thread may be
    /// starting a child process that also has the descriptor for a moment.
    fn drop(&mut self) {
        #[repr(C)]
        struct Attributes {
            link: u32,
        }
        let mut attributes = Attributes { link: self.0.as_raw_fd() as u32 };
        // SAFETY: the attributes are those of this command, and hold no pointers.
        let _ = unsafe { call(Command::LinkDetach, &mut attributes) };
    }
}

fn load(program: &[Insn], log: &mut [u8]) -> io::Result<Program> {
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        instructions_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let mut attributes = Attributes {
        program_type: PROGRAM_OF_XDP,
        instructions_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: 0,
        name: *b"dns64bench\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACHED_AS_XDP,
    };
    // SAFETY: the instructions, the license with its zero at the end, and the log with its stated
    // length all outlive the call; the log is borrowed exclusively.
    unsafe { descriptor(Command::ProgramLoad, &mut attributes) }.map(Program)
}

/// An error with the last lines of the verifier's log.
fn with_log(error: &io::Error, log: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(log).unwrap_or_default().to_string_lossy();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    match &lines[lines.len().saturating_sub(3)..] {
        [] => error.to_string(),
        last => format!("{error}: {}", last.join("; ")),
    }
}

/// Returns the address of a value as the 64-bit number that bpf(2) expects.
fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

/// Calls bpf(2) with a command that opens a descriptor.
///
/// # Safety
/// The conditions of [`call`] apply. The command must also return a descriptor.
unsafe fn descriptor<T>(command: Command, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let number = unsafe { call(command, attributes)? };
    // SAFETY: the kernel has just opened this descriptor for us; there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Calls bpf(2).
///
/// # Safety
/// `attributes` must have the layout that the kernel defines for `command` (the beginning of `union bpf_attr`). Each
/// pointer in it must be valid for the length that the command reads or writes.
unsafe fn call<T>(command: Command, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: pointer and size are those of `attributes`; the caller guarantees the rest.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attributes),
            size_of::<T>() as libc::c_ulong,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// A filter attached to an interface, with the map of the AF_XDP sockets to which it redirects packets. The filter is
/// detached when the last queue is closed.
pub(super) struct Attached {
    pub(super) _link: Link,
    pub(super) sockets: SocketMap,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Runs a program on a frame without an interface (`BPF_PROG_TEST_RUN`) and returns the program's return
    /// value.
    pub(in super::super) fn run(program: &Program, frame: &[u8]) -> i32 {
        #[repr(C)]
        #[derive(Default)]
        struct Attributes {
            program: u32,
            returned: u32,
            size_in: u32,
            size_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration: u32,
            context_size_in: u32,
            context_size_out: u32,
            context_in: u64,
            context_out: u64,
            flags: u32,
            cpu: u32,
            batch_size: u32,
            padding: u32,
        }
        let mut attributes = Attributes {
            program: program.0.as_raw_fd() as u32,
            size_in: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: 1,
            ..Attributes::default()
        };
        // SAFETY: `data_in` is `size_in` octets long and outlives the call; only the attributes
        // are written.
        unsafe { call(Command::ProgramTestRun, &mut attributes) }.expect("it runs");
        attributes.returned as i32
    }

    #[test]
    fn the_verifier_log_is_shortened() {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        let log =
            b"0: (b7) r0 = 2\n1: (79) r0 = *(u64 *)(r1 +0)\n\ninvalid access\nprocessed 2\n\0rest";
        let message = with_log(&error, log);
        assert!(message.ends_with("invalid access; processed 2"), "{message}");
        assert_eq!(with_log(&error, &[0; 4]), error.to_string());
    }
}
