//! Counts the UDP datagrams that an interface receives for some ports of this host. They are counted before the host
//! can drop them.
//!
//! ```text
//! interface ─► packet socket ─► eBPF filter: UDP, to an address of ours, to one of our ports? counter += datagrams; take nothing
//!     └──────► netfilter, routing, UDP ─► the ports' sockets
//! ```
//!
//! The filter rejects every packet, so that the kernel copies and queues no packet for this socket. Only the filter's
//! counter is used. If a packet contains several datagrams (`UDP_SEGMENT`, generic receive offload), each of them is
//! counted.

use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// A counter of received datagrams, which stops counting when the value is dropped.
pub struct Tap {
    _socket: OwnedFd,
    counter: OwnedFd,
}

impl Tap {
    /// Starts counting the datagrams that `interface` receives for the addresses in `ours` and the ports in `ports`.
    /// `ours` may be a single address. Only the first fragment of a fragmented datagram counts, and IPv6 datagrams
    /// count only without extension headers.
    ///
    /// # Errors
    /// Returns an error if the process lacks `CAP_NET_RAW` or `CAP_BPF` (root has both), or there is no such interface.
    pub fn new(interface: &str, ours: IpNet, ports: &[u16]) -> io::Result<Tap> {
        let index = if_nametoindex(interface)?;
        // A socket without a protocol receives nothing until it is bound. No packet therefore arrives before the filter
        // is attached.
        let socket =
            socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        set_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        let wanted = new_array(1, 1 << 16)?;
        for &port in ports {
            update(&wanted, port.into(), &[1u8])?;
        }
        let counter = new_array(size_of::<u64>() as u32, 1)?;
        let program = load(&filter(ours, &wanted, &counter))?;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())?;
        bind(&socket, index)?;
        Ok(Tap { _socket: socket, counter })
    }

    /// Returns the number of datagrams counted so far.
    ///
    /// # Errors
    /// Returns any error from bpf(2). None is expected while the tap is running.
    pub fn count(&self) -> io::Result<u64> {
        let (key, mut value) = (0u32, 0u64);
        let mut request = Element {
            map: self.counter.as_raw_fd() as u32,
            key: (&raw const key) as u64,
            value: (&raw mut value) as u64,
            ..Element::default()
        };
        // SAFETY: `key` and `value` have the sizes of the map (4 and 8 octets) and outlive the call; the kernel writes
        // only to `value`.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut request) }.map(|_| value)
    }
}

/// Socket option that ignores outgoing packets (linux/if_packet.h, since Linux 4.20).
const PACKET_IGNORE_OUTGOING: c_int = 23;

fn set_option(socket: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `value` is a c_int that outlives the call, and its size is passed.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn bind(socket: &OwnedFd, index: c_uint) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain data for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_ll that outlives the call, and its size is passed.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// linux/bpf.h: commands, types, and the beginning of `union bpf_attr` that each command reads. The kernel treats
// omitted octets as zero.

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_LOOKUP_ELEM: c_int = 1;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_PROG_LOAD: c_int = 5;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
const LICENSE: &CStr = c"Dual MIT/GPL";

#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct NewProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// Calls bpf(2).
///
/// # Safety
/// The pointers in `request` must be valid for `command`. Each pointer must refer to as many octets as the map or the
/// count in `request` requires.
unsafe fn bpf<T>(command: c_int, request: &mut T) -> io::Result<c_int> {
    // SAFETY: `request` is the beginning of a bpf_attr, of the stated size; the caller guarantees the pointers in it.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw mut *request, size_of::<T>() as c_uint)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as c_int) }
}

/// Creates a BPF array with `entries` values of `value_size` octets each. All values are zero.
fn new_array(value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    let key_size = size_of::<u32>() as u32;
    let mut request =
        NewMap { kind: BPF_MAP_TYPE_ARRAY, key_size, value_size, max_entries: entries };
    // SAFETY: the command takes no pointers.
    let fd = unsafe { bpf(BPF_MAP_CREATE, &mut request) }?;
    // SAFETY: the kernel has just opened this descriptor for us; there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the entry `key` of an array to `value`. The values of the array must be one octet long.
fn update(map: &OwnedFd, key: u32, value: &[u8; 1]) -> io::Result<()> {
    let mut request = Element {
        map: map.as_raw_fd() as u32,
        key: (&raw const key) as u64,
        value: value.as_ptr() as u64,
        ..Element::default()
    };
    // SAFETY: the only caller's map has keys of 4 octets and values of one octet; key and value outlive the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut request) }.map(drop)
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut request = NewProgram {
        kind: BPF_PROG_TYPE_SOCKET_FILTER,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    // SAFETY: the number of `instructions` is as stated, the license ends with a zero octet, and both outlive the call,
    // which reads them. The kernel's verifier checks the program's actions.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut request) }?;
    // SAFETY: the kernel has just opened this descriptor for us; there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A BPF instruction (`struct bpf_insn` of linux/bpf.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Encodes an instruction. Destination and source register share an octet, in the machine's bit order.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    Instruction { code, registers, offset, immediate }
}

// Instructions of the kernel's documentation (Documentation/bpf/standardization/instruction-set.rst), named by their
// effect.

/// Loads 8, 16 or 32 bits of the packet, beginning at the octet `at`, into r0. The value has the machine's octet order.
/// If the packet is too short, the program ends with 0.
const fn octet(at: i32) -> Instruction {
    instruction(0x30, 0, 0, 0, at)
}
const fn half(at: i32) -> Instruction {
    instruction(0x28, 0, 0, 0, at)
}
const fn word(at: i32) -> Instruction {
    instruction(0x20, 0, 0, 0, at)
}
/// Loads 16 bits of the packet into r0. Their position in the packet is the sum of `at` and the value of `register`.
const fn half_beyond(register: u8, at: i32) -> Instruction {
    instruction(0x48, 0, register, 0, at)
}
const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}
const fn load_octet(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x71, to, from, offset, 0)
}
const fn store_word(to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x63, to, from, offset, 0)
}
const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}
const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}
const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}
const fn and(to: u8, value: i32) -> Instruction {
    instruction(0x57, to, 0, 0, value)
}
const fn shift_left(to: u8, bits: i32) -> Instruction {
    instruction(0x67, to, 0, 0, bits)
}
/// Skips `by` instructions if the lower 32 bits of the register are not `value`.
const fn skip_unless(register: u8, value: i32, by: i16) -> Instruction {
    instruction(0x56, register, 0, by, value)
}
/// Skips `by` instructions if the lower 32 bits of the register are `value`.
const fn skip_if(register: u8, value: i32, by: i16) -> Instruction {
    instruction(0x16, register, 0, by, value)
}
/// Adds the value of a register to the 64-bit number at the address in r0, atomically across CPUs.
const fn add_atomically(from: u8) -> Instruction {
    instruction(0xdb, 0, from, 0, 0)
}
/// Looks up an entry of a map: r0 = bpf_map_lookup_elem(r1, r2). The result is a pointer to the entry, or 0.
const LOOK_UP: Instruction = instruction(0x85, 0, 0, 0, 1);
const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);
/// Placeholder in a jump to the end of the program. [`filter`] replaces it by the offset of the jump.
const LEAVE: i16 = i16::MAX;

/// Offsets of two fields in `struct __sk_buff` (linux/bpf.h): the packet's EtherType in network order, and the number
/// of segments.
const PROTOCOL: i16 = 16;
const GSO_SEGS: i16 = 164;

const UDP: i32 = 17;

/// Returns the filter program. The program counts datagrams in the map `counter`. A datagram is counted if its
/// destination address is in the range `ours`, and the entry of its destination port in the map `wanted` is 1. The
/// program accepts no packet. Register 6 contains a pointer to the packet, which the instructions that load from a
/// packet require. Register 7 contains the number of datagrams in the packet, and register 8 the length of a header.
fn filter(ours: IpNet, wanted: &OwnedFd, counter: &OwnedFd) -> Vec<Instruction> {
    let mut program = vec![
        copy(6, 1),
        load_word(7, 6, GSO_SEGS),
        // A packet with one datagram has no segments.
        skip_unless(7, 0, 1),
        set(7, 1),
        load_word(2, 6, PROTOCOL),
    ];
    match ours {
        IpNet::V4(ours) => {
            program.extend([
                leave_unless(2, ether_type(libc::ETH_P_IP)),
                octet(9),
                leave_unless(0, UDP),
            ]);
            // Only the first fragment contains the ports.
            program.extend([half(6), and(0, 0x1fff), leave_unless(0, 0)]);
            program.extend(leave_outside(16, ours.network().octets(), ours.netmask().octets()));
            // The header's length is in its first octet, in units of four octets.
            program.extend([octet(0), and(0, 15), shift_left(0, 2), copy(8, 0), half_beyond(8, 2)]);
        }
        IpNet::V6(ours) => {
            program.extend([
                leave_unless(2, ether_type(libc::ETH_P_IPV6)),
                octet(6),
                leave_unless(0, UDP),
            ]);
            let (network, mask) = (ours.network().octets(), ours.netmask().octets());
            for (at, (part, mask)) in
                (24..).step_by(4).zip(network.as_chunks().0.iter().zip(mask.as_chunks().0))
            {
                program.extend(leave_outside(at, *part, *mask));
            }
            program.push(half(40 + 2));
        }
    }
    program.push(store_word(10, -4, 0));
    program.extend(look_up(wanted));
    program.extend([load_octet(0, 0, 0), skip_if(0, 0, LEAVE), set(0, 0), store_word(10, -4, 0)]);
    program.extend(look_up(counter));
    program.push(add_atomically(7));
    let end = program.len();
    for (at, instruction) in
        program.iter_mut().enumerate().filter(|(_, instruction)| instruction.offset == LEAVE)
    {
        instruction.offset = (end - at - 1) as i16;
    }
    program.extend([set(0, 0), EXIT]);
    program
}

const fn leave_unless(register: u8, value: i32) -> Instruction {
    skip_unless(register, value, LEAVE)
}

/// Returns instructions that end the program unless four octets of the packet match `part`. The octets begin at `at`,
/// and only the bits in `mask` are compared.
fn leave_outside(at: i32, part: [u8; 4], mask: [u8; 4]) -> Vec<Instruction> {
    let (part, mask) = (i32::from_be_bytes(part), i32::from_be_bytes(mask));
    let compared = leave_unless(0, part & mask);
    match mask {
        0 => Vec::new(),
        -1 => vec![word(at), compared],
        _ => vec![word(at), and(0, mask), compared],
    }
}

/// Sets r0 to the address of an entry of `map`. The stack's topmost word contains the index of the entry. Ends the
/// program if there is no such entry.
fn look_up(map: &OwnedFd) -> [Instruction; 6] {
    // linux/bpf.h: BPF_PSEUDO_MAP_FD, a 64-bit load. The kernel replaces the loaded value, a map's
    // descriptor, by the map's address.
    let load_map = [instruction(0x18, 1, 1, 0, map.as_raw_fd()), instruction(0, 0, 0, 0, 0)];
    // All 64 bits of the pointer are compared. Otherwise the verifier cannot infer that the pointer is not null.
    let leave_if_none = instruction(0x15, 0, 0, LEAVE, 0);
    [load_map[0], load_map[1], copy(2, 10), add(2, -4), LOOK_UP, leave_if_none]
}

fn ether_type(of: c_int) -> i32 {
    i32::from((of as u16).to_be())
}

#[cfg(test)]
mod tests;
