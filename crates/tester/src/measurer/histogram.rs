//! Histograms of times, and their JSON representation.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use units::Nanos;

/// A histogram in JSON: the compressed V2 format of HdrHistogram, in Base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hdr(pub Histogram<u64>);

impl schemars::JsonSchema for Hdr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hdr".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "contentEncoding": "base64" })
    }
}

impl TryFrom<String> for Hdr {
    type Error = String;

    fn try_from(text: String) -> Result<Hdr, String> {
        let octets = BASE64_STANDARD.decode(text).map_err(|e| e.to_string())?;
        let read = Deserializer::new().deserialize(&mut &octets[..]);
        read.map(Hdr).map_err(|e| format!("no histogram: {e}"))
    }
}

impl From<Hdr> for String {
    fn from(Hdr(histogram): Hdr) -> String {
        let mut octets = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&histogram, &mut octets);
        written.expect("writing to memory does not fail");
        BASE64_STANDARD.encode(octets)
    }
}

/// Creates a histogram of round-trip times in nanoseconds, up to 100 s.
pub(super) fn rtt_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100 * Nanos::SECOND.0, 3).expect("constant bounds")
}
