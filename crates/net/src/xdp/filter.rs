//! The BPF filter that selects the packets handed to AF_XDP sockets. It is built instruction by instruction.
//!
//! ```text
//! frame ─► to this interface alone? ─► UDP over plain IPv4 or IPv6? ─► for one of our addresses and ports? ─► receive time ─► socket of its queue
//!              │ no                       │ no                            │ no                                 │ no room            │ none
//!              └──────────────────────────┴───────────────────────────────┴──────────────────► the kernel's network stack ◄────────┘
//! ```
//!
//! The filter selects only unfragmented UDP datagrams after an IP header without options or extension headers. The
//! kernel gets all other packets: TCP, ICMP, neighbour discovery, fragments, packets with VLAN tags, IPv4 options or
//! IPv6 extension headers, and packets for other programs. Frames that are not addressed to the interface's own
//! Ethernet address also go to the kernel, such as broadcasts and frames seen in promiscuous mode. Frames whose
//! Ethernet source is a group address go to the kernel, too. A reply to any of these frames would have an Ethernet
//! source or destination that does not belong to a single interface.
//!
//! The program writes the receive time (`CLOCK_MONOTONIC`) in front of every packet that it selects. Sockets of the
//! kernel's network stack get receive times by `SO_TIMESTAMPNS`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;

use super::insn::Insn;
use super::ports::{OCTETS, PortSet};

/// Number of octets in front of a packet that contain its receive time.
pub(super) const STAMP: usize = 8;

/// Destination addresses and ports for one filter. Datagrams that match both go to AF_XDP sockets and bypass the
/// kernel's network stack.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Destination addresses that match. A single address is written as a prefix of full length (/32 or /128).
    pub addresses: IpNet,
    /// Destination ports that match.
    pub ports: Ports,
}

/// Destination ports of a [`Claim`].
#[derive(Clone, Debug)]
pub enum Ports {
    /// Fixed range of ports.
    Range(RangeInclusive<u16>),
    /// Set of ports. Ports may be added and removed at any time. A packet matches if its port is in the set when the packet arrives.
    Set(Arc<PortSet>),
}

impl From<RangeInclusive<u16>> for Ports {
    fn from(range: RangeInclusive<u16>) -> Ports {
        Ports::Range(range)
    }
}

impl Claim {
    /// Creates a [`Claim`] for the datagrams to one destination address and to `ports`. The address must not be the
    /// wildcard address.
    pub fn to_address(address: IpAddr, ports: impl Into<Ports>) -> Claim {
        Claim { addresses: address.into(), ports: ports.into() }
    }

    /// Returns the destination address if there is only one, otherwise `None`.
    pub(super) fn only_address(&self) -> Option<IpAddr> {
        let is_one = self.addresses.prefix_len() == self.addresses.max_prefix_len();
        is_one.then(|| self.addresses.addr())
    }
}

/// A register. R0 holds results and R1 to R5 hold arguments; calls overwrite these six. R6 to R9 are preserved.
#[derive(Clone, Copy)]
enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
}

/// Target of a forward jump in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ipv6,
    /// First instruction after the instructions that test one [`Claim`]. The value is the index of that [`Claim`].
    Next(usize),
    Take,
    Pass,
}

/// Action of the filter for a packet that matches a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatchAction {
    /// Redirects the packet to the AF_XDP socket of its receive queue. The value is the file descriptor of the BPF map
    /// that contains the sockets.
    Redirected(i32),
    /// Ends the filter program with this return value, for tests without a socket.
    #[cfg(test)]
    Returned(i32),
}

/// `XDP_PASS` of linux/bpf.h: the packet is passed on to the kernel's network stack.
pub(super) const XDP_PASS: i32 = 2;
/// Identification numbers of BPF helper functions, from linux/bpf.h.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_META: i32 = 54;
/// Offsets of fields in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;
/// Total length of the required headers (Ethernet, IP and UDP), for IPv4 and for IPv6.
const IPV4_HEADERS: i32 = 14 + 20 + 8;
const IPV6_HEADERS: i32 = 14 + 40 + 8;

/// A BPF program under construction. Jumps refer to labels until all offsets are known.
#[derive(Default)]
struct Writer {
    program: Vec<Insn>,
    jumps: Vec<(usize, Label)>,
    labels: BTreeMap<Label, usize>,
}

/// Returns the filter program for an interface with the Ethernet address `mac`. A packet that matches one of `claims`
/// is handled by the action `taken`.
pub(super) fn program(claims: &[Claim], mac: [u8; 6], taken: MatchAction) -> Vec<Insn> {
    use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8};
    let mut w = Writer::default();
    w.copy(R6, R1);
    w.load32(R2, R6, DATA);
    w.load32(R3, R6, DATA_END);
    w.need(R4, R2, IPV4_HEADERS, R3);
    w.load32(R5, R2, 0);
    w.jump_unless_equal(R5, word([mac[0], mac[1], mac[2], mac[3]]), Label::Pass);
    w.load16(R5, R2, 4);
    w.jump_unless_equal(R5, network16(u16::from_be_bytes([mac[4], mac[5]])), Label::Pass);
    // A group address is not the address of a host (IEEE 802-2014 §8.2.2).
    w.load8(R5, R2, 6);
    w.and(R5, 1);
    w.jump_unless_equal(R5, 0, Label::Pass);
    w.load16(R5, R2, 12);
    w.jump_if_equal(R5, network16(0x86dd), Label::Ipv6);
    w.jump_unless_equal(R5, network16(0x0800), Label::Pass);
    // Version 4, header of five words.
    w.load8(R5, R2, 14);
    w.jump_unless_equal(R5, 0x45, Label::Pass);
    w.load8(R5, R2, 23);
    w.jump_unless_equal(R5, 17, Label::Pass);
    // Only whole datagrams: no further fragments and no fragment offset.
    w.load16(R5, R2, 20);
    w.and(R5, network16(0x3fff));
    w.jump_unless_equal(R5, 0, Label::Pass);
    w.load16(R7, R2, 36);
    w.swap16(R7);
    for (n, claim) in claims.iter().enumerate() {
        if let IpNet::V4(net) = claim.addresses {
            let (network, mask) = (net.network().octets(), net.netmask().octets());
            w.claimed(n, 30, &network, &mask, &claim.ports);
        }
    }
    w.jump(Label::Pass);

    w.label(Label::Ipv6);
    w.need(R4, R2, IPV6_HEADERS, R3);
    w.load8(R5, R2, 20);
    w.jump_unless_equal(R5, 17, Label::Pass);
    w.load16(R7, R2, 56);
    w.swap16(R7);
    for (n, claim) in claims.iter().enumerate() {
        if let IpNet::V6(net) = claim.addresses {
            let (network, mask) = (net.network().octets(), net.netmask().octets());
            w.claimed(n, 38, &network, &mask, &claim.ports);
        }
    }
    w.jump(Label::Pass);

    // The verifier rejects unreachable instructions.
    if !claims.is_empty() {
        w.label(Label::Take);
        w.copy(R1, R6);
        w.set(R2, -(STAMP as i32));
        w.call(XDP_ADJUST_META);
        w.jump_unless_equal(R0, 0, Label::Pass);
        w.call(KTIME_GET_NS);
        w.copy(R8, R0);
        w.load32(R2, R6, DATA_META);
        w.load32(R3, R6, DATA);
        w.need(R4, R2, STAMP as i32, R3);
        w.store64(R2, 0, R8);
        match taken {
            MatchAction::Redirected(map) => {
                w.load32(R2, R6, QUEUE);
                w.set_map(R1, map);
                // Return value if the queue has no socket.
                w.set(R3, XDP_PASS);
                w.call(REDIRECT_MAP);
            }
            #[cfg(test)]
            MatchAction::Returned(number) => w.set(R0, number),
        }
        w.exit();
    }
    w.label(Label::Pass);
    w.set(R0, XDP_PASS);
    w.exit();
    w.finished()
}

/// Converts a number to network order, so that it can be compared with a number loaded from a packet.
fn network16(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

/// Converts four octets to a number that can be compared with a 32-bit number loaded from a packet.
fn word(octets: [u8; 4]) -> i32 {
    i32::from_ne_bytes(octets)
}

impl Writer {
    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        let (to, from) = (to as u8, from as u8);
        let registers =
            if cfg!(target_endian = "little") { (from << 4) | to } else { (to << 4) | from };
        self.program.push(Insn { code, registers, offset, immediate });
    }

    fn jumping(&mut self, code: u8, to: Register, from: Register, immediate: i32, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.push(code, to, from, 0, immediate);
    }

    fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }

    fn set(&mut self, to: Register, number: i32) {
        self.push(0xb7, to, Register::R0, 0, number);
    }

    /// Appends the two instructions that load the address of a map into a register.
    fn set_map(&mut self, to: Register, map: i32) {
        // Source register 1 marks the number as a map's descriptor.
        self.push(0x18, to, Register::R1, 0, map);
        self.program.push(Insn::default());
    }

    /// Appends the two instructions that load the address of the first value of a map into a register.
    fn set_value(&mut self, to: Register, map: i32) {
        // Source register 2 refers to the values of the map with this descriptor.
        self.push(0x18, to, Register::R2, 0, map);
        self.program.push(Insn::default());
    }

    fn add(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from, 0, 0);
    }

    fn shift_right(&mut self, register: Register, bits: i32) {
        self.push(0x77, register, Register::R0, 0, bits);
    }

    /// Appends a right shift of `register`. The register `bits` contains the number of bits.
    fn shift_right_by(&mut self, register: Register, bits: Register) {
        self.push(0x7f, register, bits, 0, 0);
    }

    fn load8(&mut self, to: Register, at: Register, offset: i16) {
        self.push(0x71, to, at, offset, 0);
    }

    fn load16(&mut self, to: Register, at: Register, offset: i16) {
        self.push(0x69, to, at, offset, 0);
    }

    fn load32(&mut self, to: Register, at: Register, offset: i16) {
        self.push(0x61, to, at, offset, 0);
    }

    fn store64(&mut self, at: Register, offset: i16, from: Register) {
        self.push(0x7b, at, from, offset, 0);
    }

    /// Appends an instruction that replaces the lower 32 bits of a register by their bitwise AND with `number`. The
    /// upper 32 bits become zero.
    fn and(&mut self, to: Register, number: i32) {
        self.push(0x54, to, Register::R0, 0, number);
    }

    /// Appends an instruction that converts the 16-bit number in a register between network and host order.
    fn swap16(&mut self, register: Register) {
        self.push(0xdc, register, Register::R0, 0, 16);
    }

    fn call(&mut self, helper: i32) {
        self.push(0x85, Register::R0, Register::R0, 0, helper);
    }

    fn exit(&mut self) {
        self.push(0x95, Register::R0, Register::R0, 0, 0);
    }

    fn jump(&mut self, label: Label) {
        self.jumping(0x05, Register::R0, Register::R0, 0, label);
    }

    /// Appends a jump that is taken if a register equals `number`. The jump compares only the lower 32 bits, because a
    /// 64-bit comparison would sign-extend a negative `number`.
    fn jump_if_equal(&mut self, register: Register, number: i32, label: Label) {
        self.jumping(0x16, register, Register::R0, number, label);
    }

    fn jump_unless_equal(&mut self, register: Register, number: i32, label: Label) {
        self.jumping(0x56, register, Register::R0, number, label);
    }

    /// Appends a check that the packet has at least `length` octets between the addresses in the registers `from` and
    /// `end`. The kernel's verifier requires this check. If a packet fails the check, it goes to the kernel. The check
    /// overwrites the register `scratch`.
    fn need(&mut self, scratch: Register, from: Register, length: i32, end: Register) {
        self.copy(scratch, from);
        self.push(0x07, scratch, Register::R0, 0, length);
        self.jumping(0x2d, scratch, end, 0, Label::Pass);
    }

    /// Appends the test of whether a packet matches one [`Claim`]. The packet matches if two conditions hold. The
    /// octets of its destination address, masked with `mask`, are equal to the network address `network`. Its
    /// destination port, in R7, is one of `ports`. The address begins at the octet `at` of the packet.
    fn claimed(&mut self, n: usize, at: i16, network: &[u8], mask: &[u8], ports: &Ports) {
        let words = |octets: &[u8]| -> Vec<i32> {
            let four = octets.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]);
            four.map(word).collect()
        };
        for (i, (word, mask)) in words(network).into_iter().zip(words(mask)).enumerate() {
            if mask == 0 {
                break;
            }
            self.load32(Register::R5, Register::R2, at + 4 * i as i16);
            if mask != -1 {
                self.and(Register::R5, mask);
            }
            self.jump_unless_equal(Register::R5, word, Label::Next(n));
        }
        match ports {
            Ports::Range(range) => {
                // Unsigned comparison with both ends of the range.
                self.jumping(
                    0xa5,
                    Register::R7,
                    Register::R0,
                    i32::from(*range.start()),
                    Label::Next(n),
                );
                self.jumping(
                    0x25,
                    Register::R7,
                    Register::R0,
                    i32::from(*range.end()),
                    Label::Next(n),
                );
            }
            Ports::Set(set) => self.unless_in(set, Label::Next(n)),
        }
        self.jump(Label::Take);
        self.label(Label::Next(n));
    }

    /// Appends a jump that is taken if the port in R7 is not in `set`.
    fn unless_in(&mut self, set: &PortSet, label: Label) {
        use Register::{R1, R5, R7, R8};
        self.copy(R8, R7);
        self.shift_right(R8, 3);
        // The mask is for the verifier, which cannot infer that a port has sixteen bits.
        self.and(R8, OCTETS as i32 - 1);
        self.set_value(R1, set.number());
        self.add(R1, R8);
        self.load8(R8, R1, 0);
        self.copy(R5, R7);
        self.and(R5, 7);
        self.shift_right_by(R8, R5);
        self.and(R8, 1);
        self.jump_if_equal(R8, 0, label);
    }

    fn label(&mut self, label: Label) {
        self.labels.insert(label, self.program.len());
    }

    /// Returns the program with all jumps resolved to offsets. All jumps lead forward.
    fn finished(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let distance = self.labels[&label] - at - 1;
            self.program[at].offset = i16::try_from(distance).expect("programs are short");
        }
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::super::bpf::{Program, SocketMap, tests as kernel};
    use super::super::frame::tests::{ENDS, frame};
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use testbed::is_root;

    /// Return value of the tests' programs for a packet that matches.
    const TAKEN: i32 = 77;
    /// Destination Ethernet address of the tests' frames.
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn claims() -> Vec<Claim> {
        let claim = |address: &str, ports: RangeInclusive<u16>| {
            Claim::to_address(address.parse().unwrap(), ports)
        };
        let net = |prefix: &str, ports: RangeInclusive<u16>| {
            let addresses = prefix.parse().unwrap();
            Claim { addresses, ports: ports.into() }
        };
        vec![
            claim("198.18.0.2", 53..=53),
            claim("2001:2::2", 53..=53),
            claim("198.18.0.2", 40_000..=41_000),
            claim("2001:2::2", 0..=10),
            net("198.19.16.0/20", 7..=7),
            net("2001:2:0:ff80::/57", 7..=7),
            net("2001:db8::/32", 9..=9),
        ]
    }

    #[test]
    fn all_jumps_lead_forward_and_stay_inside() {
        let program = program(&claims(), MAC, MatchAction::Redirected(5));
        for (at, insn) in program.iter().enumerate() {
            let target = at as i64 + 1 + i64::from(insn.offset);
            let is_jump =
                insn.code & 7 == 5 && insn.code != 0x85 && insn.code != 0x95 || insn.code & 7 == 6;
            assert!(
                !is_jump || insn.offset >= 0 && target < program.len() as i64,
                "{at}: {insn:?}"
            );
        }
        assert!(program.len() < 130, "{} instructions", program.len());
        // docs/src/xdp.md states this size for a program with an address of each family.
        let usual = super::program(&claims()[..2], MAC, MatchAction::Redirected(5)).len();
        assert!((65..75).contains(&usual), "{usual} instructions");
    }

    /// The verifier accepts programs that select IPv4 datagrams, IPv6 datagrams, or both. It also accepts a program
    /// that selects no datagrams, which `probe` uses.
    #[test]
    fn the_verifier_takes_every_kind_of_program() {
        if !is_root("the_verifier_takes_every_kind_of_program") {
            return;
        }
        let map = SocketMap::new(1).unwrap();
        let of = |is_wanted: fn(&Claim) -> bool| claims().into_iter().filter(is_wanted).collect();
        let kinds: [Vec<Claim>; 4] = [
            Vec::new(),
            of(|claim| claim.addresses.addr().is_ipv4()),
            of(|claim| claim.addresses.addr().is_ipv6()),
            claims(),
        ];
        for claims in kinds {
            let loaded =
                Program::load(&program(&claims, MAC, MatchAction::Redirected(map.number())));
            assert!(loaded.is_ok(), "{claims:?}: {}", loaded.err().unwrap());
        }
    }

    /// Returns a loaded program, or `None` if the test cannot run here.
    fn loaded(test: &str) -> Option<Program> {
        is_root(test).then(|| {
            Program::load(&program(&claims(), MAC, MatchAction::Returned(TAKEN)))
                .expect("the verifier takes it")
        })
    }

    #[test]
    fn only_claimed_datagrams_are_taken() {
        let Some(program) = loaded("only_claimed_datagrams_are_taken") else { return };
        let of =
            |from: &str, to: &str| kernel::run(&program, &frame(from, to, b"a query of twenty"));
        for (from, to) in ENDS {
            assert_eq!(of(from, to), TAKEN, "{to}");
        }
        for (to, is_taken) in [
            ("198.18.0.2:52", false),
            ("198.18.0.2:54", false),
            ("198.18.0.2:13568", false), // 53 in the other byte order
            ("198.18.0.3:53", false),
            ("198.18.0.2:40000", true),
            ("198.18.0.2:41000", true),
            ("198.18.0.2:39999", false),
            ("198.18.0.2:41001", false),
            ("[2001:2::2]:0", true),
            ("[2001:2::2]:10", true),
            ("[2001:2::2]:11", false),
            ("[2001:2::3]:53", false),
            ("[2001:2:0:1::2]:53", false),
            ("[2002:2::2]:53", false),
            ("198.19.16.0:7", true),
            ("198.19.31.255:7", true),
            ("198.19.32.0:7", false),
            ("198.19.15.255:7", false),
            ("198.19.16.1:8", false),
            ("[2001:2:0:ff80::]:7", true),
            ("[2001:2:0:ffff:ffff::1]:7", true),
            ("[2001:2:0:ff7f::1]:7", false),
            ("[2001:db8:ffff::1]:9", true),
            ("[2001:db9::1]:9", false),
        ] {
            let from = if to.starts_with('[') { ENDS[1].0 } else { ENDS[0].0 };
            assert_eq!(of(from, to) == TAKEN, is_taken, "{to}");
        }
    }

    /// A reply to a broadcast would come from the broadcast address; a reply to a group address would be a broadcast.
    #[test]
    fn broadcast_and_group_frames_go_to_the_kernel() {
        let test = "broadcast_and_group_frames_go_to_the_kernel";
        let Some(program) = loaded(test) else { return };
        for (from, to) in ENDS {
            let whole = frame(from, to, b"a query of twenty");
            assert_eq!(kernel::run(&program, &whole), TAKEN);
            // IPv4 broadcast, groups of each family, and a neighbouring host.
            for other in
                [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]]
            {
                let mut changed = whole.clone();
                changed[..6].copy_from_slice(&other);
                assert_eq!(kernel::run(&program, &changed), XDP_PASS, "to {other:02x?}");
            }
            for at in 0..6 {
                let mut changed = whole.clone();
                changed[at] ^= 0x80;
                assert_eq!(kernel::run(&program, &changed), XDP_PASS, "octet {at}");
            }
            for (source, is_taken) in
                [([0xff; 6], false), ([3, 0, 0, 0, 0, 2], false), ([0xfe; 6], true)]
            {
                let mut changed = whole.clone();
                changed[6..12].copy_from_slice(&source);
                let found = kernel::run(&program, &changed) == TAKEN;
                assert_eq!(found, is_taken, "from {source:02x?}");
            }
        }
    }

    #[test]
    fn frames_without_a_plain_datagram_go_to_the_kernel() {
        let Some(program) = loaded("frames_without_a_plain_datagram_go_to_the_kernel") else {
            return;
        };
        let whole = ENDS.map(|(from, to)| frame(from, to, b"a query of twenty"));
        // Each entry gives a frame, an octet and its new value. The changed frame goes to the kernel's stack.
        for (which, at, value) in [
            (0, 14, 0x46), // IPv4 options
            (0, 20, 0x20), // more fragments
            (0, 21, 1),    // a fragment further back
            (0, 23, 6),    // TCP
            (0, 12, 0x81), // another EtherType
            (1, 20, 0),    // hop-by-hop options
            (1, 20, 44),   // a fragment
            (1, 20, 58),   // ICMPv6: neighbour discovery
        ] {
            let mut changed = whole[which].clone();
            changed[at] = value;
            assert_eq!(kernel::run(&program, &changed), XDP_PASS, "frame {which}, octet {at}");
        }
        // "Do not fragment" does not mark a fragment.
        let mut changed = whole[0].clone();
        changed[20] = 0x40;
        assert_eq!(kernel::run(&program, &changed), TAKEN);
        for frame in &whole {
            for len in 14..frame.len().min(62) {
                let found = kernel::run(&program, &frame[..len]);
                let has_headers = len >= if frame[12] == 8 { 42 } else { 62 };
                assert_eq!(found == TAKEN, has_headers, "{len} octets");
            }
        }
    }

    /// The BPF program and a simple parser in Rust give the same result for many frames. The addresses, ports, lengths
    /// and headers of these frames are at or next to the limits of the values that the program selects.
    #[test]
    fn random_frames_are_judged_as_the_rules_say() {
        let Some(program) = loaded("random_frames_are_judged_as_the_rules_say") else { return };
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (frames, mut taken) = (20_000, 0);
        for _ in 0..frames {
            let frame = random.frame();
            let is_taken = is_claimed(&frame);
            taken += usize::from(is_taken);
            assert_eq!(kernel::run(&program, &frame) == TAKEN, is_taken, "{frame:02x?}");
        }
        let share = taken as f64 / f64::from(frames);
        assert!((0.2..0.8).contains(&share), "{taken} of {frames} were taken");
    }

    /// The state of xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, limit: usize) -> usize {
            (self.next() % limit as u64) as usize
        }

        /// Returns true on average once in `calls` calls.
        fn once_in(&mut self, calls: usize) -> bool {
            self.below(calls) == 0
        }

        /// Returns a frame that matches one of the test's [`Claim`]s, or that differs only slightly from such a frame.
        fn frame(&mut self) -> Vec<u8> {
            let claims = claims();
            let claim = &claims[self.below(claims.len())];
            let destination = SocketAddr::new(self.address(&claim.addresses), self.port(claim));
            let from = ENDS[usize::from(destination.is_ipv6())].0;
            let mut frame = frame(from, &destination.to_string(), b"a query of twenty");
            if self.once_in(8) {
                // Invert one bit of the Ethernet addresses.
                frame[self.below(12)] ^= 1 << self.below(8);
            }
            if self.once_in(4) {
                // Set a header field to another valid value, or set any octet after the Ethernet header.
                let (at, octet) = [
                    (12, 0x81),
                    (14, 0x46),
                    (20, 0x20),
                    (20, 0x40),
                    (20, 17),
                    (21, 1),
                    (23, 6),
                    (14 + self.below(frame.len() - 14), self.next() as u8),
                ][self.below(8)];
                frame[at] = octet;
            }
            if self.once_in(4) {
                // Cut the frame near the end of either family's headers. The kernel requires a complete Ethernet
                // header.
                let end = [14, 42, 62][self.below(3)] + self.below(5);
                frame.truncate(end.saturating_sub(2).max(14));
            }
            frame
        }

        /// Returns the first or last address of a prefix, an adjacent address, or an address that differs in one bit.
        fn address(&mut self, net: &IpNet) -> IpAddr {
            let near = [net.network(), net.broadcast()][self.below(2)];
            let bits = net.max_prefix_len();
            let step: fn(u128, usize) -> u128 = match self.below(8) {
                0..=4 => return near,
                5 => |address, _| address.wrapping_add(1),
                6 => |address, _| address.wrapping_sub(1),
                _ => |address, bit| address ^ (1 << bit),
            };
            let bit = self.below(usize::from(bits));
            match near {
                IpAddr::V4(near) => Ipv4Addr::from(step(u32::from(near).into(), bit) as u32).into(),
                IpAddr::V6(near) => Ipv6Addr::from(step(near.into(), bit)).into(),
            }
        }

        /// Returns the first or last port of a [`Claim`], an adjacent port, or the same port in the other byte order.
        fn port(&mut self, claim: &Claim) -> u16 {
            let Ports::Range(range) = &claim.ports else { panic!("no set is claimed") };
            let near = [*range.start(), *range.end()][self.below(2)];
            match self.below(6) {
                0 => near.wrapping_add(1),
                1 => near.wrapping_sub(1),
                2 => near.swap_bytes(),
                _ => near,
            }
        }
    }

    fn is_claimed(frame: &[u8]) -> bool {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        if frame.len() < 42 || frame[..6] != MAC || frame[6] & 1 != 0 {
            return false;
        }
        let (address, port): (IpAddr, u16) = match frame[12..14] {
            [8, 0] if frame[14] == 0x45 && frame[23] == 17 && word(20) & 0x3fff == 0 => {
                let octets: [u8; 4] = frame[30..34].try_into().unwrap();
                (octets.into(), word(36))
            }
            [0x86, 0xdd] if frame.len() >= 62 && frame[20] == 17 => {
                let octets: [u8; 16] = frame[38..54].try_into().unwrap();
                (octets.into(), word(56))
            }
            _ => return false,
        };
        claims().iter().any(|claim| {
            let Ports::Range(range) = &claim.ports else { panic!("no set is claimed") };
            claim.addresses.contains(&address) && range.contains(&port)
        })
    }

    /// Each set of ports applies to one address. The program applies each change of a set immediately.
    #[test]
    fn ports_of_a_set_are_taken_while_they_are_in_it() {
        let test = "ports_of_a_set_are_taken_while_they_are_in_it";
        if !is_root(test) {
            return;
        }
        let sets = [(); 2].map(|()| Arc::new(PortSet::new().unwrap()));
        let claims = ["198.18.0.2", "2001:2::2"].iter().zip(&sets).map(|(address, set)| {
            Claim::to_address(address.parse().unwrap(), Ports::Set(Arc::clone(set)))
        });
        let claims: Vec<Claim> = claims.collect();
        let program = Program::load(&program(&claims, MAC, MatchAction::Returned(TAKEN))).unwrap();
        let is_taken = |to: &str| {
            let from = if to.starts_with('[') { ENDS[1].0 } else { ENDS[0].0 };
            kernel::run(&program, &frame(from, to, b"an answer")) == TAKEN
        };
        for port in [0, 1, 7, 8, 53, 255, 256, 32_768, 60_999, 65_535] {
            let all = || [format!("198.18.0.2:{port}"), format!("[2001:2::2]:{port}")];
            assert!(all().iter().all(|to| !is_taken(to)), "{port}");
            sets[0].insert(port);
            assert!(is_taken(&all()[0]) && !is_taken(&all()[1]), "{port}");
            assert!(!is_taken(&format!("198.18.0.2:{}", port ^ 1)), "{port}");
            assert!(!is_taken(&format!("198.18.0.2:{}", port ^ 0x100)), "{port}");
            assert!(!is_taken(&format!("198.18.0.3:{port}")), "{port}");
            sets[1].insert(port);
            sets[0].remove(port);
            assert!(!is_taken(&all()[0]) && is_taken(&all()[1]), "{port}");
            sets[1].remove(port);
        }
    }
}
