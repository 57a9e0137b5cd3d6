//! Datagrams in which a local sender has joined several messages (`UDP_SEGMENT`). They are observed
//! before the kernel splits them into one datagram per message.
//!
//! ```text
//! ┌─────────┬─────────┬─────────┬──────┐
//! │ message │ message │ message │ last │   all of one length, the last one perhaps shorter
//! └─────────┴─────────┴─────────┴──────┘
//! ```

use crate::view::Message;

/// Returns the segment length of a datagram in which several messages are joined by `UDP_SEGMENT`.
/// All messages must be complete and equally long, except that the last may be shorter. Returns
/// `None` for any other datagram, for example a message with trailing octets.
#[inline]
pub fn segment(datagram: &[u8]) -> Option<usize> {
    let end = |piece: &[u8]| Message::new(piece).and_then(|message| message.end());
    let length = end(datagram).filter(|end| *end < datagram.len())?;
    let are_whole = datagram.chunks(length).all(|piece| end(piece) == Some(piece.len()));
    are_whole.then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
        [&head[..], name, &[0, 0, 28, 0, 1]].concat()
    }

    #[test]
    fn only_whole_messages_of_one_length_are_joined() {
        let (one, two, short) = (query(b"one"), query(b"two"), query(b"a"));
        let of = |pieces: &[&[u8]]| segment(&pieces.concat());
        for joined in
            [&[&one[..], &two][..], &[&one, &two, &one], &[&one, &short], &[&one, &two, &short]]
        {
            assert_eq!(of(joined), Some(one.len()), "{joined:?}");
        }
        for other in [
            &[&one[..]][..],
            // Datagrams that an attacker may assemble, and datagrams with trailing octets.
            &[&short, &one],
            &[&one, &short, &one],
            &[&one, &short, &short],
            &[&one, b"x"],
            &[&one, &two, b"rest"],
            &[&one, &[0; 21]],
            &[b"no message"],
            &[],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        let both = [&one[..], &two].concat();
        for cut in (0..both.len()).filter(|cut| *cut != one.len()) {
            assert_eq!(segment(&both[..cut]), None, "{cut} octets");
        }
    }
}
