//! Parts that the fuzz targets of dns64d share: servers without sockets, and requirements on every reply.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::LazyLock;

use dns64::config::Settings;
use dns64::walk::Walk;
use dns64::{Cache, Cookies, KeyBuf};
use units::Nanos;
use wire::edns::put_opt;
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::Message;

/// Address of the client.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Configurations that inputs choose from.
static SETTINGS: LazyLock<Vec<Settings>> = LazyLock::new(|| {
    let texts = [
        "",
        "[dns64]\nbreak-dnssec = true\nexclude = ['2001:db8::/32']\n[cache]\nserve-stale = '1h'\n",
        "[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96' }, { prefix = '2001:db8:96::/64', ranges = ['8.0.0.0/8'] }]\n\
         [[forward]]\ndomain = 'test'\nmode = 'nodata-only'\n[forwarding]\ntrust-ad = true\n",
        "[dns64]\nexclude = ['::/0']\n[cache]\nmin-ttl = 60\nmax-ttl = 120\n",
        "[dns64]\nfilter-a = true\nhttps-hints = 'translate'\n[[domain]]\ndomain = 'test'\nignore-aaaa = true\nfallback-native = true\n",
    ];
    let upstream = "[[upstream]]\naddress = '192.0.2.1'\n";
    texts
        .iter()
        .map(|text| {
            Settings::from_text(&format!("{text}{upstream}"), Path::new("fuzz"))
                .expect("a configuration")
        })
        .collect()
});
static COOKIES: LazyLock<Cookies> = LazyLock::new(Cookies::new);
/// A cache that stores answers. It is emptied for each input, because creating a cache takes longer than answering a
/// query.
static CACHE: LazyLock<Cache> = LazyLock::new(|| Cache::new(1));
static NO_CACHE: LazyLock<Cache> = LazyLock::new(|| Cache::new(0));

/// A server with an empty state. The servers of a process share their memory, so only one exists at a time.
pub struct Server {
    settings: &'static Settings,
    cache: &'static Cache,
}

impl Server {
    /// Creates a server with one of the configurations; with a cache it stores the answers of upstreams.
    pub fn new(configuration: u8, caches: bool) -> Server {
        let settings = &SETTINGS[usize::from(configuration) % SETTINGS.len()];
        let cache = if caches { &*CACHE } else { &*NO_CACHE };
        cache.clear();
        Server { settings, cache }
    }

    /// Returns the server at this second.
    pub fn at(&self, second: u32) -> Walk<'_> {
        let now = Nanos(Nanos::SECOND.0 * u64::from(second));
        Walk { settings: self.settings, cache: self.cache, cookies: &COOKIES, now }
    }
}

/// Creates a server with these settings without a cache, at its first second.
pub fn without_cache(settings: &Settings) -> Walk<'_> {
    Walk { settings, cache: &NO_CACHE, cookies: &COOKIES, now: Nanos(0) }
}

/// Requires that a reply is a response, that its counts match its records, and that nothing follows them.
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

/// Answers of an upstream to the first and to further queries, as octets of an input:
///
/// ```text
/// configuration, RCODE and whether there is a cache (bit 7), AN, NS, AR, length of the records (two octets), records
/// first answer
/// AN, NS, AR, records
/// further ones
/// ```
///
/// Header and question are added here; records may point into the question, which begins at octet 12.
pub struct UpstreamAnswers<'a> {
    /// Number of the server's configuration.
    pub configuration: u8,
    /// True if the server caches answers.
    pub caches: bool,
    rcode: u8,
    first: ([u8; 3], &'a [u8]),
    further: ([u8; 3], &'a [u8]),
}

impl<'a> UpstreamAnswers<'a> {
    /// Parses an input; `None` if it is too short.
    pub fn read(input: &'a [u8]) -> Option<UpstreamAnswers<'a>> {
        let (head, rest) = input.split_first_chunk::<7>()?;
        let len = usize::from(u16::from_be_bytes([head[5], head[6]]));
        let (first, rest) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        let further = rest
            .split_first_chunk::<3>()
            .map_or(([0; 3], &[][..]), |(counts, records)| (*counts, records));
        Some(UpstreamAnswers {
            configuration: head[0],
            caches: head[1] & 0x80 != 0,
            rcode: head[1] & 15,
            first: ([head[2], head[3], head[4]], first),
            further,
        })
    }

    /// Returns the answer to the first or to a further query.
    pub fn message(&self, is_further: bool, question: &[u8]) -> Vec<u8> {
        let (counts, records) = if is_further { self.further } else { self.first };
        message(self.rcode, counts, question, records)
    }
}

/// Returns a response with these counts; more than 255 records in a section would add no coverage.
fn message(rcode: u8, counts: [u8; 3], question: &[u8], records: &[u8]) -> Vec<u8> {
    let mut message =
        vec![0, 0, 0x81, 0x80 | rcode, 0, 1, 0, counts[0], 0, counts[1], 0, counts[2]];
    message.extend(question);
    message.extend(records);
    message
}

/// A script of client queries and upstream answers, read from an input octet by octet; zeros after its end.
pub struct Script<'a> {
    rest: &'a [u8],
}

/// A query of a client.
pub struct Query {
    /// The complete message in wire format.
    pub bytes: Vec<u8>,
    /// Maximum UDP payload in octets, if it has EDNS.
    pub payload: Option<u16>,
}

/// Names that are aliases of each other.
const NAMES: [&[u8]; 8] = [
    b"\x01a\x04test\0",
    b"\x01b\x04test\0",
    b"\x01c\x01b\x04test\0",
    b"\x04test\0",
    b"\x03sub\x01a\x04test\0",
    b"\x08ipv4only\x04arpa\0",
    b"\x018\x018\x018\x018\x07in-addr\x04arpa\0",
    b"\0",
];

impl<'a> Script<'a> {
    /// Creates the script of an input.
    pub fn new(input: &'a [u8]) -> Script<'a> {
        Script { rest: input }
    }

    /// True at the end of the input.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next octet; 0 at the end of the script.
    pub fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[usize::from(self.octet()) % NAMES.len()]
    }

    /// Reads the next query of the client.
    pub fn query(&mut self) -> Query {
        let flags = self.octet();
        let qtype = [28u16, 28, 28, 1, 12, 255, 5, 39][usize::from(flags & 7)];
        let mut bytes =
            vec![0x12, 0x34, 1, (flags & 8) << 1 | (flags & 16) << 1, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(self.name());
        bytes.extend(qtype.to_be_bytes());
        bytes.extend([0, 1]);
        let payload = (flags & 32 != 0).then_some(512 + 8 * u16::from(flags));
        if let Some(payload) = payload {
            bytes[11] = 1;
            put_opt(&mut bytes, payload, Rcode::NOERROR, flags & 64 != 0, &[]);
        }
        Query { bytes, payload }
    }

    /// Returns the upstream's next answer to a query; `None` is silence.
    pub fn answer(&mut self, key: &KeyBuf) -> Option<Vec<u8>> {
        let how = self.octet();
        if how & 7 == 0 {
            return None;
        }
        let rcode = [0, 0, 0, 0, 2, 3, 5, 0][usize::from(how & 7)];
        let (mut counts, mut records) = ([0; 3], Vec::new());
        for _ in 0..(how >> 3) & 7 {
            let section = usize::from(self.octet() % 3);
            self.record(&mut records);
            counts[section] += 1;
        }
        if how & 64 != 0 {
            let error = [0, 15, 0, 2, 0, self.octet() % 32];
            counts[2] += 1;
            put_opt(&mut records, 1_232, Rcode::NOERROR, false, &error);
        }
        Some(message(rcode, counts, key.question(), &records))
    }

    /// Appends a record that is well-formed except for the targets of pointers.
    fn record(&mut self, out: &mut Vec<u8>) {
        let kind = self.octet();
        match kind & 3 {
            0 => out.extend([0xc0, 12]),
            1 => out.extend([0xc0, self.octet()]),
            _ => out.extend(self.name()),
        }
        let rtype = [1u16, 28, 5, 39, 6, 46, 2, 12][usize::from(kind >> 2 & 7)];
        out.extend(rtype.to_be_bytes());
        out.extend([0, 1]);
        out.extend([if kind & 32 != 0 { 0x7f } else { 0 }, 0, self.octet(), self.octet()]);
        let mut data = Vec::new();
        let mut target = |script: &mut Script<'_>| {
            let kind = script.octet();
            if kind & 1 == 0 {
                data.extend(script.name())
            } else {
                data.extend([0xc0, script.octet()])
            }
        };
        match rtype {
            1 => data.extend([8, 8, 8, self.octet()]),
            28 => data.extend([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, self.octet()]),
            6 => {
                target(self);
                target(self);
                data.extend([0; 18]);
                data.extend([0, self.octet()]);
            }
            46 => {
                data.extend([0, [1, 28, 5, 39][usize::from(self.octet() % 4)]]);
                data.extend([0; 16]);
                data.extend(b"\x04test\0signature");
            }
            _ => target(self),
        }
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
}
