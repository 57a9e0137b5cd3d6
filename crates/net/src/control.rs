//! Addresses and ancillary data of datagrams to send.

use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};

use libc::{sockaddr_storage, socklen_t};
use socket2::SockAddr;

/// Size, in octets, of the buffer for ancillary data: a segment size (24 octets) and a source address (40 octets).
pub(crate) const CONTROL_LEN: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control(pub(crate) [u8; CONTROL_LEN]);

pub(crate) fn write_address(storage: &mut sockaddr_storage, address: SocketAddr) -> socklen_t {
    let address = SockAddr::from(address);
    // SAFETY: SockAddr's storage is a sockaddr_storage of which `len` octets are valid; source and destination are both
    // at least that long.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut *storage).cast::<u8>(),
            (address.len() as usize).min(size_of::<sockaddr_storage>()),
        );
    }
    address.len()
}

/// Writes the ancillary data of a message, and returns its length.
pub(crate) fn write_control(
    control: &mut Control,
    segment: Option<u16>,
    local: Option<IpAddr>,
) -> usize {
    if segment.is_none() && local.is_none() {
        return 0;
    }
    control.0.fill(0);
    let mut at = 0;
    if let Some(segment) = segment {
        at += append(control, at, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    match local {
        Some(IpAddr::V4(local)) => {
            // SAFETY: in_pktinfo is plain data for which all zeros is a valid value.
            let mut info: libc::in_pktinfo = unsafe { zeroed() };
            info.ipi_spec_dst.s_addr = u32::from(local).to_be();
            at += append(control, at, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(local)) => {
            // SAFETY: in6_pktinfo is plain data for which all zeros is a valid value.
            let mut info: libc::in6_pktinfo = unsafe { zeroed() };
            info.ipi6_addr.s6_addr = local.octets();
            at += append(control, at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        None => {}
    }
    at
}

/// Appends one control message at `at` and returns the number of octets that it occupies.
fn append<T: Copy>(
    control: &mut Control,
    at: usize,
    level: libc::c_int,
    kind: libc::c_int,
    value: T,
) -> usize {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute lengths.
    let (space, len) = unsafe {
        (
            libc::CMSG_SPACE(size_of::<T>() as u32) as usize,
            libc::CMSG_LEN(size_of::<T>() as u32) as usize,
        )
    };
    assert!(at + space <= CONTROL_LEN, "CONTROL_LEN has room for both messages that there can be");
    let header = control.0[at..].as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: `at` is a sum of CMSG_SPACEs, so the header is aligned, and the assertion ensures that header and data
    // are inside the buffer.
    unsafe {
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = len as _;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
    space
}
