//! What the fuzz targets of dns64d share: servers without sockets, and what every reply must be.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::LazyLock;

use dns64::client::cookies::Cookies;
use dns64::config::Settings;
use dns64::resolver::cache::Cache;
use dns64::walk::Walk;
use method::units::Nanos;
use wire::template::HEADER_LEN;
use wire::view::Message;

/// The client that asks.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The configurations that inputs choose from.
static SETTINGS: LazyLock<Vec<Settings>> = LazyLock::new(|| {
    let texts = [
        "",
        "[dns64]\nbreak-dnssec = true\nexclude = ['2001:db8::/32']\n[cache]\nserve-stale = '1h'\n",
        "[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96' }, { prefix = '2001:db8:96::/64', ranges = ['8.0.0.0/8'] }]\n\
         [[forward]]\ndomain = 'test'\nmode = 'nodata-only'\n[forwarding]\ntrust-ad = true\n",
        "[dns64]\nexclude = ['::/0']\n[cache]\nmin-ttl = 60\nmax-ttl = 120\n",
    ];
    let upstream = "[[upstream]]\naddress = '192.0.2.1'\n";
    texts
        .iter()
        .map(|text| Settings::from_text(&format!("{text}{upstream}"), Path::new("fuzz")).expect("a configuration"))
        .collect()
});
static COOKIES: LazyLock<Cookies> = LazyLock::new(Cookies::new);

/// A server that knows nothing yet.
pub struct Server {
    settings: &'static Settings,
    cache: Cache,
}

impl Server {
    /// The server with one of the configurations; with a cache it keeps what upstreams say.
    pub fn new(configuration: u8, caches: bool) -> Server {
        let settings = &SETTINGS[usize::from(configuration) % SETTINGS.len()];
        Server { settings, cache: Cache::new(u64::from(caches)) }
    }

    /// What its client gets at this second.
    pub fn at(&self, second: u32) -> Walk<'_> {
        let now = Nanos(Nanos::SECOND.0 * u64::from(second));
        Walk { settings: self.settings, cache: &self.cache, cookies: &COOKIES, now }
    }
}

/// A reply is a response, its counts are those of its records, and nothing comes after them.
pub fn assert_well_formed(reply: &[u8]) {
    let message = Message::new(reply).expect("a header");
    assert!(message.is_response());
    let mut at = HEADER_LEN;
    for _ in 0..message.qdcount() {
        at = message.skip_name(at).expect("our question") + 4;
    }
    let mut records = message.all_records(at);
    for record in records.by_ref() {
        record.expect("a well-formed record");
    }
    assert_eq!(records.offset(), reply.len(), "octets behind the last record");
}
