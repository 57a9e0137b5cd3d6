//! Signed messages (TSIG, RFC 8945): signing of requests and verification of replies. The crate
//! `domain` lacks HMAC-MD5 and SHA-224, which resperf keys still use. Tests compare this
//! implementation with the one in `domain`.
//!
//! ```text
//! request ─► Key::sign ─► request + TSIG record, and its Mac
//! reply + TSIG record, Mac of its request ─► Key::verify
//! ```

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::base::Name;
use hmac::Hmac;
use md5::Md5;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use crate::template::HEADER_LEN;
use crate::view::{Malformed, Message};

/// Record type TSIG.
const TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
/// Maximum clock difference, in seconds (RFC 8945 §10).
const FUDGE: u16 = 300;

/// Signature algorithm (RFC 8945 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC-MD5, the default of resperf.
    Md5,
    /// HMAC-SHA-1.
    Sha1,
    /// HMAC-SHA-224.
    Sha224,
    /// HMAC-SHA-256.
    Sha256,
    /// HMAC-SHA-384.
    Sha384,
    /// HMAC-SHA-512.
    Sha512,
}

impl Algorithm {
    /// All algorithms with their names on the command line.
    const ALL: [(&str, Algorithm); 6] = [
        ("hmac-md5", Algorithm::Md5),
        ("hmac-sha1", Algorithm::Sha1),
        ("hmac-sha224", Algorithm::Sha224),
        ("hmac-sha256", Algorithm::Sha256),
        ("hmac-sha384", Algorithm::Sha384),
        ("hmac-sha512", Algorithm::Sha512),
    ];

    /// Returns the algorithm's name in wire format.
    fn wire_name(self) -> &'static [u8] {
        match self {
            Algorithm::Md5 => b"\x08hmac-md5\x07sig-alg\x03reg\x03int\0",
            Algorithm::Sha1 => b"\x09hmac-sha1\0",
            Algorithm::Sha224 => b"\x0bhmac-sha224\0",
            Algorithm::Sha256 => b"\x0bhmac-sha256\0",
            Algorithm::Sha384 => b"\x0bhmac-sha384\0",
            Algorithm::Sha512 => b"\x0bhmac-sha512\0",
        }
    }
}

/// Message authentication code.
#[derive(Clone, Copy)]
pub struct Mac {
    bytes: [u8; 64],
    len: u8,
}

impl Mac {
    /// The empty authentication code, for a message without a signature.
    pub const EMPTY: Mac = Mac { bytes: [0; 64], len: 0 };

    fn new(bytes: &[u8]) -> Mac {
        let mut mac = Mac { len: bytes.len() as u8, ..Mac::EMPTY };
        mac.bytes[..bytes.len()].copy_from_slice(bytes);
        mac
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A TSIG key: name, algorithm and secret.
#[derive(Clone)]
pub struct Key {
    /// Name of the key, in wire format and lower case.
    name: Vec<u8>,
    algorithm: Algorithm,
    secret: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {:?})", String::from_utf8_lossy(&self.name), self.algorithm)
    }
}

/// Error in the text of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{given}' is not a TSIG key: {why}; write [algorithm:]name:secret with the secret in Base64, for example hmac-sha256:key.example:c2VjcmV0"
)]
pub struct KeyError {
    given: String,
    why: String,
}

impl KeyError {
    /// Returns the reason, without any part of the key.
    pub fn reason(&self) -> &str {
        &self.why
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(s: &str) -> Result<Key, KeyError> {
        let parts: Vec<&str> = s.split(':').collect();
        // The secret must not appear in logs. With a wrong number of colons, any part may be the secret.
        let shown = match parts[..] {
            [name, _] => format!("{name}:…"),
            [algorithm, name, _] => format!("{algorithm}:{name}:…"),
            _ => "…".into(),
        };
        let bad = |why: String| KeyError { given: shown.clone(), why };
        let (algorithm, name, secret) = match parts[..] {
            [name, secret] => (Algorithm::Md5, name, secret),
            [algorithm, name, secret] => {
                let known =
                    Algorithm::ALL.iter().find(|(word, _)| algorithm.eq_ignore_ascii_case(word));
                let names = Algorithm::ALL.map(|(word, _)| word).join(", ");
                (
                    known.ok_or_else(|| bad(format!("the algorithm must be one of {names}")))?.1,
                    name,
                    secret,
                )
            }
            _ => return Err(bad("it must contain one or two colons".into())),
        };
        let name = Name::<Vec<u8>>::from_str(name).map_err(|e| bad(e.to_string()))?;
        let secret = STANDARD
            .decode(secret)
            .map_err(|e| bad(format!("the secret is not valid Base64 ({e})")))?;
        if secret.is_empty() {
            return Err(bad("the secret is empty".into()));
        }
        Ok(Key { name: name.as_slice().to_ascii_lowercase(), algorithm, secret })
    }
}

/// Reason why the signature of a reply is invalid (RFC 8945 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSignature {
    /// The reply has no TSIG record at its end.
    #[error("not signed")]
    Unsigned,
    /// The server rejected the request's signature with this error code: 16 BADSIG, 17 BADKEY, 18
    /// BADTIME, 22 BADTRUNC.
    #[error("the server refused the signature with TSIG error {0}")]
    Refused(u16),
    /// The reply was signed with a different key or algorithm.
    #[error("signed with another key")]
    Key,
    /// The authentication code is invalid.
    #[error("wrong signature")]
    Signature,
    /// The time of the signature is too far from the current time.
    #[error("time of signature too far from the current time")]
    Time,
    /// The reply cannot be parsed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Key {
    fn mac(&self, parts: &[&[u8]]) -> Mac {
        match self.algorithm {
            Algorithm::Md5 => code::<Hmac<Md5>>(&self.secret, parts),
            Algorithm::Sha1 => code::<Hmac<Sha1>>(&self.secret, parts),
            Algorithm::Sha224 => code::<Hmac<Sha224>>(&self.secret, parts),
            Algorithm::Sha256 => code::<Hmac<Sha256>>(&self.secret, parts),
            Algorithm::Sha384 => code::<Hmac<Sha384>>(&self.secret, parts),
            Algorithm::Sha512 => code::<Hmac<Sha512>>(&self.secret, parts),
        }
    }

    /// Returns the TSIG variables (RFC 8945 §4.3.3).
    fn variables(&self, time: u64, fudge: u16, error: u16, other: &[u8]) -> Vec<u8> {
        let mut out = self.name.clone();
        out.extend(CLASS_ANY.to_be_bytes());
        out.extend(0u32.to_be_bytes());
        out.extend(self.algorithm.wire_name());
        out.extend(&time.to_be_bytes()[2..]);
        out.extend(fudge.to_be_bytes());
        out.extend(error.to_be_bytes());
        out.extend((other.len() as u16).to_be_bytes());
        out.extend(other);
        out
    }

    /// Signs the request that is stored in `out`, from offset `start` to the end. `time` is the signing time (seconds
    /// since 1970).
    ///
    /// # Panics
    /// Panics if the request is shorter than a message header.
    pub fn sign(&self, out: &mut Vec<u8>, start: usize, time: u64) -> Mac {
        let mac = self.mac(&[&out[start..], &self.variables(time, FUDGE, 0, &[])]);
        let id: [u8; 2] = out[start..start + 2].try_into().expect("a header");
        let count = u16::from_be_bytes([out[start + 10], out[start + 11]]) + 1;
        out[start + 10..start + 12].copy_from_slice(&count.to_be_bytes());
        out.extend(&self.name);
        out.extend(TSIG.to_be_bytes());
        out.extend(CLASS_ANY.to_be_bytes());
        out.extend(0u32.to_be_bytes());
        let algorithm = self.algorithm.wire_name();
        out.extend(((algorithm.len() + 16 + mac.bytes().len()) as u16).to_be_bytes());
        out.extend(algorithm);
        out.extend(&time.to_be_bytes()[2..]);
        out.extend(FUDGE.to_be_bytes());
        out.extend((mac.bytes().len() as u16).to_be_bytes());
        out.extend(mac.bytes());
        out.extend(id);
        // No error, no other data.
        out.extend([0; 4]);
        mac
    }

    /// Verifies the signature of `reply`. `time` is the current time (seconds since 1970). `request` is the
    /// authentication code of the request.
    ///
    /// # Errors
    /// Returns an error if the signature is missing or invalid.
    pub fn verify(&self, reply: &[u8], request: &Mac, time: u64) -> Result<(), BadSignature> {
        let tsig = Tsig::find(reply)?;
        if tsig.mac.is_empty() && tsig.error != 0 {
            return Err(BadSignature::Refused(tsig.error));
        }
        if !tsig.name.eq_ignore_ascii_case(&self.name)
            || !tsig.algorithm.eq_ignore_ascii_case(self.algorithm.wire_name())
        {
            return Err(BadSignature::Key);
        }
        let mut header: [u8; HEADER_LEN] = reply[..HEADER_LEN].try_into().map_err(|_| Malformed)?;
        header[..2].copy_from_slice(&tsig.original_id);
        let count = u16::from_be_bytes([header[10], header[11]]) - 1;
        header[10..].copy_from_slice(&count.to_be_bytes());
        let length = u16::from(request.len).to_be_bytes();
        let variables = self.variables(tsig.time, tsig.fudge, tsig.error, tsig.other);
        let wanted = self.mac(&[
            &length,
            request.bytes(),
            &header,
            &reply[HEADER_LEN..tsig.begins_at],
            &variables,
        ]);
        match (wanted.bytes() == tsig.mac, tsig.error) {
            (false, _) => Err(BadSignature::Signature),
            (true, 0) if time.abs_diff(tsig.time) > u64::from(tsig.fudge) => {
                Err(BadSignature::Time)
            }
            (true, 0) => Ok(()),
            (true, error) => Err(BadSignature::Refused(error)),
        }
    }
}

fn code<M: hmac::Mac + hmac::digest::KeyInit>(secret: &[u8], parts: &[&[u8]]) -> Mac {
    let mut mac = <M as hmac::digest::KeyInit>::new_from_slice(secret)
        .expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    Mac::new(&mac.finalize().into_bytes())
}

/// The TSIG record at the end of a reply.
struct Tsig<'a> {
    begins_at: usize,
    name: Vec<u8>,
    algorithm: Vec<u8>,
    time: u64,
    fudge: u16,
    mac: &'a [u8],
    original_id: [u8; 2],
    error: u16,
    other: &'a [u8],
}

impl<'a> Tsig<'a> {
    fn find(reply: &'a [u8]) -> Result<Tsig<'a>, BadSignature> {
        let message = Message::new(reply).ok_or(Malformed)?;
        let mut at = HEADER_LEN;
        for _ in 0..message.qdcount() {
            at = message.skip_name(at)? + 4;
        }
        let sections = [message.ancount(), message.nscount(), message.arcount()];
        let count =
            sections.iter().try_fold(0u16, |sum, &n| sum.checked_add(n)).ok_or(Malformed)?;
        let mut last = None;
        for record in message.records(at, count) {
            last = Some(record?);
        }
        let record = last
            .filter(|r| r.rtype == TSIG && message.arcount() > 0)
            .ok_or(BadSignature::Unsigned)?;
        let mut buffer = [0; 255];
        let len = message.copy_name(record.owner, &mut buffer)?;
        let name = buffer[..len].to_vec();
        let len = message.copy_name(record.data_at, &mut buffer)?;
        let algorithm = buffer[..len].to_vec();
        let fixed = message.skip_name(record.data_at)? - record.data_at;
        let rest = record.data.get(fixed..).ok_or(Malformed)?;
        let number = |at: usize| {
            rest.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]])).ok_or(Malformed)
        };
        let mac_len = usize::from(number(8)?);
        let after = 10 + mac_len;
        let other_len = usize::from(number(after + 4)?);
        let mut time = [0; 8];
        time[2..].copy_from_slice(rest.get(..6).ok_or(Malformed)?);
        Ok(Tsig {
            begins_at: record.owner,
            name,
            algorithm,
            time: u64::from_be_bytes(time),
            fudge: number(6)?,
            mac: rest.get(10..after).ok_or(Malformed)?,
            original_id: number(after)?.to_be_bytes(),
            error: number(after + 2)?,
            other: rest.get(after + 6..after + 6 + other_len).ok_or(Malformed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::MessageBuilder;
    use domain::base::iana::{Class, Rcode, Rtype};
    use domain::rdata::tsig::Time48;
    use domain::tsig::{Algorithm as Theirs, Key as TheirKey, KeyName, ServerTransaction};
    use proptest::prelude::*;
    use std::sync::Arc;

    const NOW: u64 = 1_800_000_000;
    const SECRET: &[u8] = b"a secret of some length, and more";

    fn query() -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(4711);
        let mut question = builder.question();
        question
            .push((Name::<Vec<u8>>::from_str("www.example.").unwrap(), Rtype::A, Class::IN))
            .unwrap();
        question.finish()
    }

    fn ours(algorithm: &str) -> Key {
        format!("{algorithm}:Key.Example:{}", STANDARD.encode(SECRET)).parse().unwrap()
    }

    #[test]
    fn signatures_interoperate_with_domain() {
        for (word, algorithm) in [
            ("hmac-sha1", Theirs::Sha1),
            ("hmac-sha256", Theirs::Sha256),
            ("hmac-sha384", Theirs::Sha384),
            ("hmac-sha512", Theirs::Sha512),
        ] {
            let name: KeyName = Name::from_str("key.example.").unwrap();
            let theirs = Arc::new(TheirKey::new(algorithm, SECRET, name, None, None).unwrap());
            let key = ours(word);
            let mut request = vec![0xff; 7];
            request.extend(query());
            let mac = key.sign(&mut request, 7, NOW);
            let mut received = domain::base::Message::from_octets(request[7..].to_vec()).unwrap();
            let now = Time48::from_u64(NOW);
            let transaction = ServerTransaction::request(&Arc::clone(&theirs), &mut received, now);
            let transaction =
                transaction.unwrap_or_else(|e| panic!("{word}: {e:?}")).expect("it is signed");
            let answer = MessageBuilder::new_vec().start_answer(&received, Rcode::NOERROR).unwrap();
            let mut additional = answer.additional();
            transaction.answer(&mut additional, now).unwrap();
            let mut reply = additional.finish();
            key.verify(&reply, &mac, NOW).unwrap_or_else(|e| panic!("{word}: {e}"));
            assert_eq!(key.verify(&reply, &mac, NOW + 301), Err(BadSignature::Time));
            assert_eq!(key.verify(&reply, &Mac::EMPTY, NOW), Err(BadSignature::Signature));
            reply[3] ^= 1;
            assert_eq!(key.verify(&reply, &mac, NOW), Err(BadSignature::Signature));
        }
    }

    /// TSIG record at the end of a reply: key name, algorithm, authentication code, error and other
    /// data.
    struct End<'a> {
        name: &'a [u8],
        algorithm: &'a [u8],
        mac: &'a [u8],
        error: u16,
        other: &'a [u8],
    }

    impl End<'_> {
        /// Returns a reply to `query()` with this TSIG record in the additional section.
        fn reply(&self) -> Vec<u8> {
            let mut reply = query();
            reply[2] |= 0x80;
            reply[11] = 1;
            reply.extend(self.name);
            reply.extend(TSIG.to_be_bytes());
            reply.extend(CLASS_ANY.to_be_bytes());
            reply.extend(0u32.to_be_bytes());
            let length = self.algorithm.len() + 16 + self.mac.len() + self.other.len();
            reply.extend((length as u16).to_be_bytes());
            reply.extend(self.algorithm);
            reply.extend(&NOW.to_be_bytes()[2..]);
            reply.extend(FUDGE.to_be_bytes());
            reply.extend((self.mac.len() as u16).to_be_bytes());
            reply.extend(self.mac);
            reply.extend(4711_u16.to_be_bytes());
            reply.extend(self.error.to_be_bytes());
            reply.extend((self.other.len() as u16).to_be_bytes());
            reply.extend(self.other);
            reply
        }
    }

    /// RFC 8945 §5.2 and §5.3: a server that rejects a key or a signature cannot sign its reply. A
    /// server that rejects the time signs its reply and includes its own time.
    #[test]
    fn refusals_differ_from_wrong_signatures() {
        let key = ours("hmac-sha256");
        let request = Mac::new(b"the request's");
        let end = End {
            name: &key.name,
            algorithm: key.algorithm.wire_name(),
            mac: &[],
            error: 0,
            other: &[],
        };
        let judged = |end: &End<'_>, time| key.verify(&end.reply(), &request, time);
        let refused = |error| judged(&End { error, ..end }, NOW);
        assert_eq!(refused(17), Err(BadSignature::Refused(17)));
        assert_eq!(refused(0), Err(BadSignature::Signature), "no refusal");
        // The signed part excludes the TSIG record.
        let signed = |error, other: &[u8]| {
            let mut reply = query();
            reply[2] |= 0x80;
            let length = u16::from(request.len).to_be_bytes();
            let variables = key.variables(NOW, FUDGE, error, other);
            key.mac(&[&length, request.bytes(), &reply, &variables])
        };
        let mac = signed(0, &[]);
        let right = End { mac: mac.bytes(), ..end };
        for (time, wanted) in [
            (NOW, Ok(())),
            (NOW + 300, Ok(())),
            (NOW - 300, Ok(())),
            (NOW + 301, Err(BadSignature::Time)),
            (NOW - 301, Err(BadSignature::Time)),
        ] {
            assert_eq!(judged(&right, time), wanted, "{time}");
        }
        let own_time = [0, 0, 1, 2, 3, 4];
        let mac = signed(18, &own_time);
        let late = End { mac: mac.bytes(), error: 18, other: &own_time, ..end };
        assert_eq!(judged(&late, NOW), Err(BadSignature::Refused(18)));
        assert_eq!(judged(&End { error: 16, ..late }, NOW), Err(BadSignature::Signature));
        // A different name, or a different algorithm, makes it a different key.
        for other in [
            End { name: b"\x05other\x07example\0", ..right },
            End { algorithm: Algorithm::Sha512.wire_name(), ..right },
        ] {
            assert_eq!(judged(&other, NOW), Err(BadSignature::Key));
        }
        assert_eq!(judged(&End { name: b"\x03KEY\x07example\0", ..right }, NOW), Ok(()));
    }

    #[test]
    fn only_an_additional_record_at_the_end_signs() {
        let key = ours("hmac-sha256");
        let end = End { name: &key.name, algorithm: b"\0", mac: &[], error: 17, other: &[] };
        let mut answer = end.reply();
        (answer[7], answer[11]) = (1, 0);
        assert_eq!(key.verify(&answer, &Mac::EMPTY, NOW), Err(BadSignature::Unsigned));
        let mut unsigned = query();
        unsigned[11] = 1;
        crate::edns::put_opt(&mut unsigned, 512, crate::rcode::Rcode::NOERROR, false, &[]);
        assert_eq!(key.verify(&unsigned, &Mac::EMPTY, NOW), Err(BadSignature::Unsigned));
    }

    #[test]
    fn a_key_is_shown_without_its_secret() {
        let shown = format!("{:?}", ours("hmac-sha256"));
        assert!(shown.starts_with("Key(") && shown.ends_with("Sha256)"), "{shown}");
        assert!(shown.contains("example") && !shown.contains("secret"), "{shown}");
    }

    /// RFC 2202 §2 case 1 and RFC 4231 §4.2: algorithms that `domain` lacks.
    #[test]
    fn hmac_md5_and_sha224_vectors() {
        let code = |algorithm, len| {
            let key = Key { name: vec![0], algorithm, secret: vec![0x0b; len] };
            key.mac(&[b"Hi ", b"There"])
                .bytes()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect::<String>()
        };
        assert_eq!(code(Algorithm::Md5, 16), "9294727a3638bb1c13f48ef8158bfc9d");
        assert_eq!(
            code(Algorithm::Sha224, 20),
            "896fb1128abbdf196832107cd49df33f47b4b1169912ba4f53684b22"
        );
    }

    #[test]
    fn key_errors_do_not_show_the_secret() {
        assert_eq!("name:c2VjcmV0".parse::<Key>().unwrap().algorithm, Algorithm::Md5);
        for bad in
            ["name", "a:b:c:d", "hmac-sha3:name:c2VjcmV0", "name:c2Vj!", "name:", "a..b:c2VjcmV0"]
        {
            let error = bad.parse::<Key>().unwrap_err().to_string();
            assert!(
                error.contains("[algorithm:]name:secret") && !error.contains("'name:c2Vj!"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn arbitrary_replies_do_not_panic(reply in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = ours("hmac-sha256").verify(&reply, &Mac::EMPTY, NOW);
        }

        #[test]
        fn modified_signed_reply_is_invalid(at in 0usize..200, by in 1u8..) {
            let key = ours("hmac-sha256");
            let mut signed = query();
            key.sign(&mut signed, 0, NOW);
            let at = at % signed.len();
            signed[at] ^= by;
            // The signature does not cover the authentication code of a request, so no modification
            // of `signed` is a valid reply.
            prop_assert!(key.verify(&signed, &Mac::new(b"x"), NOW).is_err());
        }
    }
}
