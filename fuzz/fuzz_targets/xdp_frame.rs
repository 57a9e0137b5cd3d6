//! AuthDNS reads any frame accepted by the filter as a datagram or not at all, and its reply is a correct frame to the
//! sender. The Measurer and dns64d read it like AuthDNS, and split joined datagrams without a loss. An address from the
//! kernel is inside the memory and within one frame, or rejected.
//!
//! An input is an octet of flags, the length of the reply in eighths of the maximum, and the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use net::xdp::{answer_frame, receive_frame, stamped};
use wire::joined;
use wire::view::Message;

/// Octets of a frame after the kernel's headroom.
const FRAME: usize = 2048 - 256;
/// Flag: checksums are corrected, because no fuzzer guesses them.
const REPAIR: u8 = 1;
/// Flag: the kernel reports a packet length above the actual one.
const TOO_LONG: u8 = 2;
/// Flag: the interface is a network card's, so no checksum is left to it.
const BY_CABLE: u8 = 4;

fuzz_target!(|input: &[u8]| {
    let [flags, eighths, frame @ ..] = input else { return };
    let mut memory = [0; FRAME];
    let packet = &mut memory[..frame.len().min(FRAME)];
    packet.copy_from_slice(&frame[..packet.len()]);
    let by_cable = flags & BY_CABLE != 0;
    if flags & REPAIR != 0 {
        repair(packet, by_cable);
    }
    let length = packet.len() + if flags & TOO_LONG != 0 { FRAME } else { 0 };
    place_is_in_the_memory(packet_start(&memory), length);
    let received = receive_frame(&memory, length, by_cable).map(|arrived| {
        assert!(!(by_cable && arrived.has_partial_checksum));
        is_taken_apart(arrived.bytes);
        let link = [octets(&memory, 6), octets(&memory, 0)].concat();
        assert_eq!(arrived.link[..], link, "back to where it came from");
        (arrived.bytes.len(), arrived.source)
    });
    let (macs, mut query, mut said) = ([0, 6].map(|at| octets(&memory, at)), None, 0);
    let reply = answer_frame(&mut memory, length, by_cable, |datagram, source, out| {
        query = Some((datagram.bytes.len(), source.address().expect("it is known")));
        said = out.len() * usize::from(eighths % 9) / 8;
        out[..said].fill(*eighths);
        said
    });
    assert_eq!(received, query, "both ends read the same");
    let Some(reply) = reply else {
        assert!(query.is_none() || said == 0, "the reply is lost");
        return;
    };
    let (asked, client) = query.expect("a reply to something");
    assert!(asked + 42 <= length && [6, 0].map(|at| octets(&memory, at)) == macs);
    // Read by the client's end.
    let mut seen = None;
    let none = answer_frame(&mut memory, reply, by_cable, |datagram, source, _| {
        seen = Some((datagram.bytes.to_vec(), source.address().expect("it is known")));
        0
    });
    let (bytes, server) = seen.expect("a reply is a right frame");
    assert!(none.is_none() && bytes == vec![*eighths; said]);
    assert_eq!(server.is_ipv4(), client.is_ipv4());
    // Reversed once more, it comes from the client.
    let again = answer_frame(&mut memory, reply, by_cable, |_, _, out| {
        out[0] = 0;
        1
    });
    let mut back = None;
    answer_frame(&mut memory, again.expect("a reply to the reply"), by_cable, |_, source, _| {
        back = source.address();
        0
    });
    assert_eq!(back, Some(client));
});

/// The first octets of the frame, used as a descriptor from the kernel.
fn packet_start(memory: &[u8]) -> u64 {
    u64::from_le_bytes(memory[..8].try_into().expect("eight octets"))
}

/// Checks a descriptor's address, and others near it that are more likely to be inside the memory.
fn place_is_in_the_memory(address: u64, length: usize) {
    let memory = 4096 * (FRAME + 256);
    for address in [address, address % memory as u64, length as u64, memory as u64 - address % 4096]
    {
        let Some(place) = stamped(memory, address) else { continue };
        assert!(place.start as u64 + 8 == address && place.start < place.end);
        assert!(place.end <= memory && place.start / 2048 == (place.end - 1) / 2048);
    }
}

/// Requires that joined datagrams consist of complete messages, all of one length except the last.
fn is_taken_apart(bytes: &[u8]) {
    let Some(length) = joined::segment(bytes) else { return };
    assert!(length < bytes.len());
    for piece in bytes.chunks(length) {
        let message = Message::new(piece).expect("a header at least");
        assert_eq!(message.end(), Some(piece.len()));
    }
}

fn octets(memory: &[u8], at: usize) -> [u8; 6] {
    memory[at..at + 6].try_into().expect("six octets")
}

/// Writes the checksum of an IPv4 header and omits UDP's. For an IPv6 datagram, writes the partial checksum that
/// senders leave to a NIC to complete, or the complete one with `by_cable`.
fn repair(packet: &mut [u8], by_cable: bool) {
    match packet.get(12..14) {
        Some([0x08, 0x00]) if packet.len() >= 42 => {
            packet[24..26].fill(0);
            let sum = !folded(&packet[14..34], 0);
            packet[24..26].copy_from_slice(&sum.to_be_bytes());
            packet[40..42].fill(0);
        }
        Some([0x86, 0xdd]) if packet.len() >= 62 => {
            let length = u16::from_be_bytes([packet[58], packet[59]]);
            let mut sum = folded(&packet[22..54], u32::from(length) + 17);
            if by_cable {
                packet[60..62].fill(0);
                let end = (54 + usize::from(length)).clamp(54, packet.len());
                sum = !folded(&packet[54..end], u32::from(sum));
            }
            packet[60..62].copy_from_slice(&sum.to_be_bytes());
        }
        _ => (),
    }
}

/// Returns the sum of 16-bit words in 16 bits, with carries added. An odd octet at the end is padded with zero.
fn folded(words: &[u8], start: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum = words.chunks(2).map(word).sum::<u32>() + start;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
