//! Template for AAAA queries, which is built once and changed in place for each query.

use std::net::Ipv4Addr;

use domain::base::iana::{Class, Rtype};
use domain::base::{MessageBuilder, Name};

use crate::name::{Domain, LABEL_LEN, write_label};

/// Offset of the text of the first label in a query: after the header and the length octet of the label.
const LABEL_AT: usize = 13;
/// Length of the header of a DNS message, in octets.
pub const HEADER_LEN: usize = 12;

/// A query in the format of dns64perf++: RD=1, no EDNS, one question of type AAAA. All queries made from a template
/// have equal length, as required by UDP segmentation offload.
#[derive(Clone, Debug)]
pub struct QueryTemplate {
    bytes: Vec<u8>,
}

impl QueryTemplate {
    /// Returns the template for names below `domain`.
    pub fn aaaa(domain: &Domain) -> QueryTemplate {
        let mut name = vec![LABEL_LEN as u8];
        name.extend([b'0'; LABEL_LEN]);
        name.extend(domain.wire());
        let name = Name::from_octets(name).expect("Domain leaves room for the label");
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_rd(true);
        let mut question = builder.question();
        question.push((name, Rtype::AAAA, Class::IN)).expect("a vector grows");
        QueryTemplate { bytes: question.finish() }
    }

    /// Returns the length of each query in octets.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Always returns false. A template is never empty, because a query has at least a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the unchanged template: the query with id 0 for the name that encodes the address 0.0.0.0.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Turns a copy of the template into the query for `address`.
    ///
    /// # Panics
    /// Panics if `query` is shorter than the template.
    #[inline]
    pub fn patch(query: &mut [u8], id: u16, address: Ipv4Addr) {
        query[..2].copy_from_slice(&id.to_be_bytes());
        let label =
            query[LABEL_AT..].first_chunk_mut::<LABEL_LEN>().expect("a copy of the template");
        write_label(address, label);
    }

    /// True if `message` contains exactly the question of the query for `address`, ignoring letter
    /// case.
    #[inline]
    pub fn is_question_of(&self, message: &[u8], address: Ipv4Addr) -> bool {
        let Some(question) = message.get(HEADER_LEN..self.len()) else { return false };
        let mut label = [0; LABEL_LEN];
        write_label(address, &mut label);
        let after = LABEL_AT + LABEL_LEN;
        question[0] == LABEL_LEN as u8
            && question[1..=LABEL_LEN] == label
            && question[1 + LABEL_LEN..].eq_ignore_ascii_case(&self.bytes[after..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::Message;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn domain_reads_patched_queries(id: u16, address: u32) {
            let address = Ipv4Addr::from(address);
            let template = QueryTemplate::aaaa(&Domain::dns64perf());
            let mut query = template.bytes().to_vec();
            QueryTemplate::patch(&mut query, id, address);
            prop_assert_eq!((query.len(), template.len(), template.is_empty()), (48, 48, false));
            prop_assert!(template.is_question_of(&query, address));
            prop_assert!(!template.is_question_of(&query, Ipv4Addr::from(u32::from(address) ^ 1)));

            let message = Message::from_octets(&query[..]).unwrap();
            prop_assert_eq!(message.header().id(), id);
            prop_assert!(message.header().rd() && !message.header().qr());
            let question = message.sole_question().unwrap();
            prop_assert_eq!(question.qname().to_string(), Domain::dns64perf().name_of(address));
            prop_assert_eq!((question.qtype(), question.qclass()), (Rtype::AAAA, Class::IN));
        }
    }

    #[test]
    fn questions_are_compared_without_case_and_to_the_end() {
        let template = QueryTemplate::aaaa(&"Example.org".parse().unwrap());
        let address = Ipv4Addr::new(1, 2, 3, 4);
        let mut query = template.bytes().to_vec();
        QueryTemplate::patch(&mut query, 1, address);
        let mut loud = query.clone();
        loud[28..].make_ascii_uppercase();
        assert!(template.is_question_of(&loud, address));
        let mut other_type = query.clone();
        let at = other_type.len() - 3;
        other_type[at] = 1;
        assert!(!template.is_question_of(&other_type, address));
        assert!(!template.is_question_of(&query[..query.len() - 1], address));
    }
}
