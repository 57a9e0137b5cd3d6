//! DNS cookies, the server's side (RFC 7873, RFC 9018).

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::base::Serial;
use domain::base::opt::cookie::{ServerCookie, StandardServerCookie};

use crate::client::query::{Cookie, Query};
use crate::client::reply::COOKIE_LEN;

/// How old a cookie of ours may be, and how far ahead of our clock (RFC 9018 §4.3), seconds.
const OLDEST: u32 = 3_600;
const AHEAD: u32 = 300;

/// The secret that our cookies are made with; new at every start.
pub struct Cookies {
    secret: [u8; 16],
}

impl Default for Cookies {
    fn default() -> Cookies {
        Cookies::new()
    }
}

impl Cookies {
    /// Cookies with a new secret.
    pub fn new() -> Cookies {
        Cookies { secret: rand::random() }
    }

    /// The cookie option for the reply to a query that has this one.
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

    /// Whether the query has a cookie of ours for its source address, which is thereby no forged
    /// one.
    pub(crate) fn proves(&self, query: &Query<'_>, client: IpAddr) -> bool {
        query.cookie().is_some_and(|cookie| self.is_ours(&cookie, client))
    }

    /// Whether this is a cookie of ours for the client's address.
    pub(crate) fn is_ours(&self, cookie: &Cookie, client: IpAddr) -> bool {
        let Some(ours) = cookie.server_cookie().and_then(|server| server.try_to_standard()) else {
            return false;
        };
        let age = now().wrapping_sub(ours.timestamp().into_int());
        (age <= OLDEST || age.wrapping_neg() <= AHEAD)
            && ours.check_hash(cookie.client, client, &self.secret)
    }
}

/// Seconds since 1970, as cookies count them: modulo 2³².
fn now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}
