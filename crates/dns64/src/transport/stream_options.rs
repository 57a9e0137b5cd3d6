//! EDNS options that only replies over connections have: keepalive (RFC 7828) and padding (RFC 7830, RFC 8467).
//!
//! The options are added to a finished reply, so that replies over UDP need no code for them.

use std::time::Duration;

use wire::edns::{Opt, option, put_option_header};
use wire::template::HEADER_LEN;
use wire::view::{Message, Record};

use super::Transport;

/// Length of the blocks to which replies are padded, in octets (RFC 8467 §4.1).
const BLOCK: usize = 468;
/// Length of the code and the length field of an option, in octets.
const OPTION_HEADER_LEN: usize = 4;

/// Options that are added to the reply to a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Time for which the server keeps an idle connection open, in units of 100 ms. `None` if the query does not request
    /// this option.
    keepalive: Option<u16>,
    is_padded: bool,
}

impl StreamOptions {
    /// Returns the options that a query requests. Replies over encrypted transports are padded if the query is padded. The
    /// server closes connections that are idle for the time `idle`.
    pub(crate) fn requested_by(
        query: &[u8],
        transport: Transport,
        idle: Duration,
    ) -> StreamOptions {
        let mut options = StreamOptions::default();
        if !transport.is_encrypted() {
            return options;
        }
        for code in option_codes(query) {
            match code {
                option::PADDING => options.is_padded = true,
                option::TCP_KEEPALIVE if transport == Transport::Tls => {
                    options.keepalive =
                        Some(u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX));
                }
                _ => {}
            }
        }
        options
    }

    /// Adds the options to a reply. A reply without an OPT record stays unchanged.
    pub(crate) fn add_to(self, reply: &mut Vec<u8>) {
        if self == StreamOptions::default() {
            return;
        }
        // The OPT record of a reply is its last record.
        let opt = records(reply).last().filter(|record| Opt::from_record(record).is_some());
        let Some(length_at) = opt.map(|record| record.data_at - 2) else { return };
        if let Some(keepalive) = self.keepalive {
            put_option_header(reply, option::TCP_KEEPALIVE, 2);
            reply.extend(keepalive.to_be_bytes());
        }
        if self.is_padded {
            let padded = (reply.len() + OPTION_HEADER_LEN).next_multiple_of(BLOCK);
            let padded = padded.min(usize::from(u16::MAX));
            if let Some(padding) = padded.checked_sub(reply.len() + OPTION_HEADER_LEN) {
                put_option_header(reply, option::PADDING, padding);
                reply.resize(padded, 0);
            }
        }
        let length = (reply.len() - length_at - 2) as u16;
        reply[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// True if the query has the keepalive option, which is an error over QUIC (RFC 9250 §5.5.2).
pub(super) fn has_keepalive(query: &[u8]) -> bool {
    option_codes(query).any(|code| code == option::TCP_KEEPALIVE)
}

/// Returns the codes of the EDNS options in a message, up to the first malformed one.
fn option_codes(message: &[u8]) -> impl Iterator<Item = u16> {
    let opt = records(message).find_map(|record| Opt::from_record(&record));
    opt.into_iter().flat_map(|opt| opt.options().map_while(Result::ok)).map(|(code, _)| code)
}

/// Returns the records of all sections of a message with at most one question, up to the first malformed one.
fn records(message: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let view = Message::new(message);
    let records = view.and_then(|view| {
        let at = match view.qdcount() {
            0 => HEADER_LEN,
            _ => view.skip_name(HEADER_LEN).ok()? + 4,
        };
        let count = view.ancount().saturating_add(view.nscount()).saturating_add(view.arcount());
        Some(view.records(at, count))
    });
    records.into_iter().flatten().map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use wire::edns::put_opt;
    use wire::rcode::Rcode;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Returns a message with one question and an OPT record with these options.
    fn message(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        message.extend(b"\x01a\x04test\0\0\x1c\0\x01");
        put_opt(&mut message, 1232, Rcode::NOERROR, false, options);
        message
    }

    #[test]
    fn requested_options() {
        let (padding, keepalive) = ([0, 12, 0, 1, 0], [0, 11, 0, 0]);
        let both = [&padding[..], &keepalive].concat();
        for (options, transport, is_padded, keepalive) in [
            (&[][..], Transport::Tls, false, None),
            (&padding, Transport::Tls, true, None),
            (&both, Transport::Tls, true, Some(100)),
            (&both, Transport::Https, true, None),
            (&both, Transport::Quic, true, None),
            (&both, Transport::Tcp, false, None),
        ] {
            let query = message(options);
            let requested = StreamOptions::requested_by(&query, transport, IDLE);
            assert_eq!(
                requested,
                StreamOptions { keepalive, is_padded },
                "{transport} {options:?}"
            );
        }
        assert!(has_keepalive(&message(&both)) && !has_keepalive(&message(&padding)));
        assert!(!has_keepalive(&[0; 12]) && !has_keepalive(b"short"));
    }

    #[test]
    fn padded_replies_have_the_length_of_blocks() {
        let options = StreamOptions { keepalive: Some(100), is_padded: true };
        // The second reply has one octet too little for the empty option in its block.
        let bare = message(&[]).len() + 6;
        let filled = |octets: usize| {
            let mut options = Vec::new();
            put_option_header(&mut options, 65_001, octets);
            options.resize(4 + octets, 7);
            message(&options)
        };
        for (mut reply, length) in [
            (message(&[]), BLOCK),
            (filled(BLOCK - bare - 4 - 3), 2 * BLOCK),
            (filled(BLOCK - bare - 4 - 4), BLOCK),
            (filled(65_480), usize::from(u16::MAX)),
        ] {
            options.add_to(&mut reply);
            assert_eq!(reply.len(), length);
            let codes: Vec<u16> = option_codes(&reply).collect();
            assert!(codes.ends_with(&[option::TCP_KEEPALIVE, option::PADDING]), "{codes:?}");
        }
    }

    #[test]
    fn replies_without_opt_stay_unchanged() {
        let options = StreamOptions { keepalive: None, is_padded: true };
        let mut reply = message(&[]);
        reply.truncate(HEADER_LEN + 12);
        reply[11] = 0;
        for reply in [reply, Vec::new()] {
            let mut padded = reply.clone();
            options.add_to(&mut padded);
            assert_eq!(padded, reply);
        }
        let mut plain = message(&[]);
        StreamOptions::default().add_to(&mut plain);
        assert_eq!(plain, message(&[]));
    }
}
