//! DNS cookies, server side (RFC 7873, RFC 9018).

use std::net::IpAddr;

use domain::base::Serial;
use domain::base::opt::cookie::{ServerCookie, StandardServerCookie};
use net::clock;
use units::Nanos;
use wire::rcode::Rcode;

use crate::client::query::{Cookie, Query};
use crate::client::reply::COOKIE_LEN;

/// Maximum age of a server cookie in seconds (RFC 9018 §4.3).
const OLDEST: u32 = 3_600;
/// Maximum time in seconds by which a time stamp may be ahead of the local clock (RFC 9018 §4.3).
const AHEAD: u32 = 300;

/// Secret for server cookies. A new secret is generated at every start.
pub struct Cookies {
    secret: [u8; 16],
}

impl Default for Cookies {
    fn default() -> Cookies {
        Cookies::new()
    }
}

impl Cookies {
    /// Generates a new secret.
    pub fn new() -> Cookies {
        Cookies { secret: rand::random() }
    }

    /// Returns the cookie option for the reply to a query that contains the cookie option `cookie`.
    pub(crate) fn answer(
        &self,
        cookie: Option<Cookie>,
        client: IpAddr,
    ) -> Option<[u8; COOKIE_LEN]> {
        let cookie = cookie?;
        let ours =
            StandardServerCookie::calculate(cookie.client, Serial(now()), client, &self.secret);
        let mut option = [0; COOKIE_LEN];
        option[..8].copy_from_slice(&cookie.client.into_octets());
        option[8..].copy_from_slice(ServerCookie::from(ours).as_ref());
        Some(option)
    }

    /// True if the query has a valid server cookie for its source address. Such a cookie proves
    /// that the source address is not forged.
    pub(crate) fn proves(&self, query: &Query<'_>, client: IpAddr) -> bool {
        query.cookie().is_some_and(|cookie| self.is_ours(&cookie, client))
    }

    /// Returns the RCODE of the reply to a query without a question. The result is BADCOOKIE if `rcode` is NOERROR
    /// and the server cookie is invalid (RFC 7873 §5.4). Otherwise, it is `rcode`.
    pub(crate) fn confirm(&self, rcode: Rcode, cookie: Option<&Cookie>, client: IpAddr) -> Rcode {
        let is_invalid = |cookie: &Cookie| cookie.server.is_some() && !self.is_ours(cookie, client);
        match cookie {
            Some(cookie) if rcode == Rcode::NOERROR && is_invalid(cookie) => Rcode::BADCOOKIE,
            _ => rcode,
        }
    }

    /// True if the cookie contains a valid server cookie for the client's address.
    pub(crate) fn is_ours(&self, cookie: &Cookie, client: IpAddr) -> bool {
        let Some(ours) = cookie.server_cookie().and_then(|server| server.try_to_standard()) else {
            return false;
        };
        let age = now().wrapping_sub(ours.timestamp().into_int());
        (age <= OLDEST || age.wrapping_neg() <= AHEAD)
            && ours.check_hash(cookie.client, client, &self.secret)
    }
}

/// Returns the current time in the format of cookie time stamps: seconds since 1970, modulo 2³².
fn now() -> u32 {
    (clock::wall().0 / Nanos::SECOND.0) as u32
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use domain::base::opt::cookie::ClientCookie;

    use super::*;

    /// RFC 7873 §5.4.
    #[test]
    fn item_44_cookies_without_question_are_confirmed() {
        let (cookies, client) = (Cookies::new(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let with = |server| Cookie { client: ClientCookie::from_octets([7; 8]), server };
        let sent = cookies.answer(Some(with(None)), client).unwrap();
        let ours: [u8; 16] = sent[8..].try_into().unwrap();
        let mut changed = ours;
        changed[15] ^= 1;
        for (server, rcode) in [
            (None, Rcode::NOERROR),
            (Some(ours), Rcode::NOERROR),
            (Some(changed), Rcode::BADCOOKIE),
            (Some([0; 16]), Rcode::BADCOOKIE),
        ] {
            let cookie = with(server);
            assert_eq!(cookies.confirm(Rcode::NOERROR, Some(&cookie), client), rcode, "{server:?}");
            let error = cookies.confirm(Rcode::FORMERR, Some(&cookie), client);
            assert_eq!(error, Rcode::FORMERR, "{server:?}");
        }
        assert_eq!(cookies.confirm(Rcode::NOERROR, None, client), Rcode::NOERROR);
        let elsewhere = Ipv4Addr::BROADCAST.into();
        let stolen = cookies.confirm(Rcode::NOERROR, Some(&with(Some(ours))), elsewhere);
        assert_eq!(stolen, Rcode::BADCOOKIE, "another address");
    }
}
