//! Server cookies of the reference server (RFC 7873), in the layout of RFC 9018 §4. The hash function is that of the
//! standard library, because no other server has to verify these cookies.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use conform::message::Message;

/// EDNS option code of the COOKIE option (RFC 7873 §4).
pub(super) const COOKIE: u16 = 10;
/// RCODE of an invalid cookie (RFC 7873 §8).
pub(super) const BADCOOKIE: u16 = 23;
/// Length of a client cookie in octets.
const CLIENT: usize = 8;
/// Total length of the version, the reserved octets and the timestamp, in octets.
const HEAD: usize = 8;
/// Maximum age of a server cookie in seconds (RFC 9018 §4.3). The timestamp of a server cookie may be up to `AHEAD`
/// seconds in the future.
const OLDEST: u32 = 3600;
const AHEAD: u32 = 300;

/// Secret from which server cookies are computed.
#[derive(Default)]
pub(super) struct Cookies {
    secret: RandomState,
}

impl Cookies {
    /// Returns the COOKIE option of the reply: the client cookie, and a new server cookie.
    pub(super) fn answer(&self, query: &Message, address: IpAddr) -> Option<(u16, Vec<u8>)> {
        let (client, _) = parts(query)?;
        let head = [&[1, 0, 0, 0], &now().to_be_bytes()[..]].concat();
        let hash = self.hash(client, &head, address);
        Some((COOKIE, [client, &head, &hash].concat()))
    }

    /// Returns true if the query contains a server cookie that is not valid for the client.
    pub(super) fn has_invalid(&self, query: &Message, address: IpAddr) -> bool {
        let is_valid = |client: &[u8], server: &[u8]| {
            let Some((head, hash)) = server.split_at_checked(HEAD) else { return false };
            let time = head[4..].try_into().map_or(0, u32::from_be_bytes);
            let age = now().wrapping_sub(time);
            (age <= OLDEST || age.wrapping_neg() <= AHEAD)
                && hash == self.hash(client, head, address)
        };
        parts(query).is_some_and(|(client, server)| !server.is_empty() && !is_valid(client, server))
    }

    fn hash(&self, client: &[u8], head: &[u8], address: IpAddr) -> [u8; 8] {
        self.secret.hash_one((client, head, address)).to_be_bytes()
    }
}

/// Returns the client cookie and the server cookie of a query. The server cookie may be empty.
pub(super) fn parts(query: &Message) -> Option<(&[u8], &[u8])> {
    content(query)?.split_at_checked(CLIENT)
}

/// Returns true if the COOKIE option has a length that RFC 7873 §5.2.2 does not allow.
pub(super) fn is_malformed(query: &Message) -> bool {
    content(query).is_some_and(|content| !matches!(content.len(), 8 | 16..=40))
}

/// Returns the content of the first COOKIE option. Further COOKIE options are ignored (RFC 7873
/// §5.2).
fn content(query: &Message) -> Option<&[u8]> {
    let mut options = query.edns.iter().flat_map(|edns| &edns.options);
    options.find(|(code, _)| *code == COOKIE).map(|(_, content)| content.as_slice())
}

/// Returns the seconds since 1970 modulo 2³² (RFC 9018 §4.3).
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use conform::message::name;
    use domain::base::iana::Rtype;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn with_cookie(content: &[u8]) -> Message {
        let mut query = Message::query(&name("x.example"), Rtype::AAAA);
        query.edns.as_mut().unwrap().options.push((COOKIE, content.to_vec()));
        query
    }

    #[test]
    fn rfc_7873_5_2_valid_and_invalid_cookies() {
        let cookies = Cookies::default();
        let (code, content) = cookies.answer(&with_cookie(&[7; 8]), HERE).unwrap();
        assert_eq!(
            (code, content.len(), &content[..12]),
            (10, 24, &[7, 7, 7, 7, 7, 7, 7, 7, 1, 0, 0, 0][..])
        );
        assert!(!cookies.has_invalid(&with_cookie(&content), HERE));
        assert!(!cookies.has_invalid(&with_cookie(&content[..8]), HERE), "no server cookie");
        assert!(cookies.has_invalid(&with_cookie(&content), Ipv4Addr::BROADCAST.into()));
        assert!(cookies.has_invalid(&with_cookie(&content[..16]), HERE));
        for at in [0, 15, 23] {
            let mut other = content.clone();
            other[at] ^= 1;
            assert!(cookies.has_invalid(&with_cookie(&other), HERE), "octet {at}");
        }
        let plain = Message::query(&name("x.example"), Rtype::AAAA);
        assert!(cookies.answer(&plain, HERE).is_none() && !cookies.has_invalid(&plain, HERE));
    }

    #[test]
    fn rfc_7873_5_2_2_lengths() {
        for (len, malformed) in [(0, true), (7, true), (8, false), (12, true), (16, false)] {
            assert_eq!(is_malformed(&with_cookie(&vec![7; len])), malformed, "{len}");
        }
        assert!(!is_malformed(&with_cookie(&[7; 40])) && is_malformed(&with_cookie(&[7; 41])));
    }
}
