//! Buffer with name compression (RFC 1035 §4.1.4) for messages written with the crate `domain`.
//!
//! The compressors in the crate `domain` compare each name, or even each label, with all earlier names. A name has up
//! to 127 labels, and a hostile upstream can send a message with thousands of names. This compressor therefore
//! records at most [`MOST_KNOWN`] names, and compares a name with each recorded name at most once.

use std::convert::Infallible;

use domain::base::name::{Label, ToName};
use domain::base::wire::Composer;
use domain::dep::octseq::{OctetsBuilder, Truncate};
use smallvec::SmallVec;

/// Maximum target offset of a compression pointer.
const MAX_TARGET: usize = 0x3fff;

/// Maximum number of names recorded as pointer targets. This is enough for four names of 127 labels
/// (RFC 1035 §2.3.4) with all their ancestors. A typical message contains only a few names.
const MOST_KNOWN: usize = 512;

/// Maximum number of elements that a list stores without heap allocation. The lists are the labels of a name, and the
/// pointer targets of a message.
const USUAL: usize = 16;

/// Value of [`Known::above`] if the parent name is the root, which is not recorded.
const ROOT: u16 = u16::MAX;

/// A message being written.
#[derive(Clone, Debug)]
pub(crate) struct Compressor {
    octets: Vec<u8>,
    /// Names that can be pointer targets. In this list, each name comes after its parent name.
    known: SmallVec<[Known; USUAL]>,
    limit: usize,
}

/// A name in the message that can be a pointer target.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Offset of the first label of the name.
    at: u16,
    /// Offset of the parent name, which is this name without its first label.
    above: u16,
}

impl Compressor {
    /// Returns an empty message with a capacity of `capacity` octets. The message is full
    /// ([`Compressor::is_full`]) if it has more than `limit` octets.
    pub(crate) fn new(capacity: usize, limit: usize) -> Compressor {
        Compressor { octets: Vec::with_capacity(capacity), known: SmallVec::new(), limit }
    }

    /// True if the message exceeds its limit. Further octets can still be written.
    pub(crate) fn is_full(&self) -> bool {
        self.octets.len() > self.limit
    }

    /// Returns the octets written.
    pub(crate) fn into_octets(self) -> Vec<u8> {
        self.octets
    }

    /// Returns the offset of an earlier occurrence of the whole name, or `None` if there is none.
    pub(crate) fn place_of(&self, name: &impl ToName) -> Option<u16> {
        match self.longest_known(&labels(name)) {
            (0, ROOT) => None,
            (0, at) => Some(at),
            _ => None,
        }
    }

    /// Finds the longest recorded suffix of a name. Returns the number of labels before the suffix,
    /// and the offset of the suffix.
    fn longest_known(&self, labels: &[&Label]) -> (usize, u16) {
        let (mut left, mut above) = (labels.len(), ROOT);
        for known in &self.known {
            let Some(label) = labels[..left].last() else { break };
            if known.above == above && self.is_label(known.at, label) {
                left -= 1;
                above = known.at;
            }
        }
        (left, above)
    }

    /// True if the message contains this label at the offset `at`. Letter case is ignored.
    fn is_label(&self, at: u16, label: &Label) -> bool {
        let (len, rest) = (label.len(), &self.octets[usize::from(at)..]);
        usize::from(rest[0]) == len && rest[1..=len].eq_ignore_ascii_case(label.as_ref())
    }
}

/// Returns the labels of a name without the root label.
fn labels<N: ToName + ?Sized>(name: &N) -> SmallVec<[&Label; USUAL]> {
    let mut labels: SmallVec<[&Label; USUAL]> = name.iter_labels().collect();
    labels.pop();
    labels
}

impl Composer for Compressor {
    fn append_compressed_name<N: ToName + ?Sized>(&mut self, name: &N) -> Result<(), Infallible> {
        let labels = labels(name);
        let (new, mut above) = self.longest_known(&labels);
        for label in &labels[..new] {
            self.octets.push(label.len() as u8);
            self.octets.extend_from_slice(label.as_ref());
        }
        let mut at = self.octets.len();
        match above {
            ROOT => self.octets.push(0),
            known => self.octets.extend_from_slice(&(0xc000 | known).to_be_bytes()),
        }
        // Labels are recorded from right to left, so that each name comes after its parent name.
        for label in labels[..new].iter().rev() {
            at -= 1 + label.len();
            if at > MAX_TARGET || self.known.len() == MOST_KNOWN {
                break;
            }
            self.known.push(Known { at: at as u16, above });
            above = at as u16;
        }
        Ok(())
    }

    fn can_compress(&self) -> bool {
        true
    }
}

impl OctetsBuilder for Compressor {
    type AppendError = Infallible;

    fn append_slice(&mut self, slice: &[u8]) -> Result<(), Infallible> {
        self.octets.extend_from_slice(slice);
        Ok(())
    }
}

impl Truncate for Compressor {
    fn truncate(&mut self, len: usize) {
        self.octets.truncate(len);
        let is_there = |at: u16| usize::from(at) < len;
        self.known
            .retain(|known| is_there(known.at) && (known.above == ROOT || is_there(known.above)));
    }
}

impl AsRef<[u8]> for Compressor {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

impl AsMut<[u8]> for Compressor {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }
}

#[cfg(test)]
mod tests {
    use domain::base::message_builder::StaticCompressor;
    use domain::base::name::Name;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::wire;

    fn write(target: &mut impl Composer, names: &[String]) {
        for name in names {
            let name = Name::from_octets(wire_as_spelt(name)).unwrap();
            assert!(target.append_compressed_name(&name).is_ok());
        }
    }

    fn wire_as_spelt(name: &str) -> Vec<u8> {
        name.parse::<Name<Vec<u8>>>().unwrap().as_slice().to_vec()
    }

    /// A name of one-letter labels, so that different names often have a common suffix.
    fn names(most_labels: usize) -> impl Strategy<Value = String> {
        proptest::collection::vec("[aAbc]", 0..=most_labels)
            .prop_map(|labels| labels.join(".") + ".")
    }

    proptest! {
        #[test]
        fn few_names_compress_as_in_domain(
            names in proptest::collection::vec(names(4), 0..6),
        ) {
            let mut ours = Compressor::new(0, usize::MAX);
            let mut theirs = StaticCompressor::new(Vec::new());
            write(&mut ours, &names);
            write(&mut theirs, &names);
            prop_assert_eq!(ours.into_octets(), theirs.into_target());
        }

        #[test]
        fn names_are_read_as_they_were_written(
            names in proptest::collection::vec(names(120), 0..300),
        ) {
            // Later names are preceded by octets that are not names, as in a message.
            let mut ours = Compressor::new(0, usize::MAX);
            let mut offsets = Vec::new();
            for name in &names {
                ours.append_slice(&[0xff; 12]).unwrap();
                offsets.push(ours.as_ref().len());
                write(&mut ours, std::slice::from_ref(name));
            }
            prop_assert!(ours.known.len() <= MOST_KNOWN);
            let octets = ours.into_octets();
            let message = wire::view::Message::new(&octets);
            let Some(message) = message else { return Ok(()) };
            for (at, name) in offsets.into_iter().zip(&names) {
                let mut read = [0; 255];
                let len = message.copy_name(at, &mut read).unwrap();
                prop_assert_eq!(&read[..len].to_ascii_lowercase(), &wire(name));
            }
        }
    }

    /// Names removed by truncation are no longer pointer targets.
    #[test]
    fn truncated_names_are_no_pointer_targets() {
        let mut ours = Compressor::new(0, usize::MAX);
        write(&mut ours, &["a.test.".into()]);
        let len = ours.as_ref().len();
        write(&mut ours, &["b.a.test.".into()]);
        ours.truncate(len);
        write(&mut ours, &["b.a.test.".into(), "b.a.test.".into()]);
        assert_eq!(ours.into_octets(), b"\x01a\x04test\0\x01b\xc0\0\xc0\x08");
    }
}
