//! The Frame Streams protocol: length-prefixed frames on a connection. A handshake at the start negotiates the content
//! type, and a second handshake ends the stream.
//!
//! ```text
//! writer  READY(type) ──────► ┐            START(type), data, data …, STOP ─► ┐
//! reader              ACCEPT(type) ───────►                                   FINISH
//! ```
//!
//! A frame length of 0 announces a control frame. The length, the type and the fields of the
//! control frame follow. All numbers are 32-bit big-endian. Farsight Security's fstrm defines this
//! format.

use std::io::{self, Read, Write};

/// Content type of the frames.
const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";
/// Type number of the content type field, which is the only field in control frames.
const FIELD_CONTENT_TYPE: u32 = 1;
/// Maximum length of a control frame, in octets.
const LONGEST_CONTROL: usize = 512;

/// Types of control frames, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Accept = 1,
    Start = 2,
    Stop = 3,
    Ready = 4,
    Finish = 5,
}

/// Writer of frames on a connection, after the handshake.
pub(super) struct FrameWriter<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: Read + Write> FrameWriter<S> {
    /// Performs the handshake with the reader.
    ///
    /// # Errors
    /// Returns an error if the reader requests a different content type, or does not answer.
    pub(super) fn start(mut stream: S) -> io::Result<FrameWriter<S>> {
        stream.write_all(&control(Control::Ready, true))?;
        let body = read_control(&mut stream)?;
        if !is_accept(&body) {
            return Err(io::Error::other("the reader does not accept dnstap"));
        }
        stream.write_all(&control(Control::Start, true))?;
        Ok(FrameWriter { stream, buffer: Vec::new() })
    }

    /// Appends a frame to the buffer.
    pub(super) fn put(&mut self, data: &[u8]) {
        // A frame with a DNS message is much shorter than 4 GiB.
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.buffer.extend(len.to_be_bytes());
        self.buffer.extend(data);
    }

    /// Returns the number of octets in the buffer.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// Returns an error if the reader has closed the connection or does not read. The connection can then no longer
    /// be used.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let written = self.stream.write_all(&self.buffer);
        self.buffer.clear();
        written
    }

    /// Ends the stream: sends STOP, and waits for FINISH.
    ///
    /// # Errors
    /// Returns an error if the reader does not send FINISH.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.stream.write_all(&control(Control::Stop, false))?;
        let body = read_control(&mut self.stream)?;
        if kind(&body) == Some(Control::Finish as u32) {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// Encodes a control frame with its header.
fn control(kind: Control, with_type: bool) -> Vec<u8> {
    let mut body = (kind as u32).to_be_bytes().to_vec();
    if with_type {
        body.extend(FIELD_CONTENT_TYPE.to_be_bytes());
        body.extend((CONTENT_TYPE.len() as u32).to_be_bytes());
        body.extend(CONTENT_TYPE);
    }
    [&[0; 4][..], &(body.len() as u32).to_be_bytes(), &body].concat()
}

/// Reads the type and the fields of the next frame, which must be a control frame.
fn read_control(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut numbers = [0; 8];
    stream.read_exact(&mut numbers)?;
    let [escape, len] = [number(&numbers, 0), number(&numbers, 4)].map(Option::unwrap_or_default);
    let len = len as usize;
    if escape != 0 || !(4..=LONGEST_CONTROL).contains(&len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn number(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn kind(body: &[u8]) -> Option<u32> {
    number(body, 0)
}

/// True if the frame is an ACCEPT for dnstap. An ACCEPT without a content type accepts all types.
fn is_accept(body: &[u8]) -> bool {
    let mut at = 4;
    let mut types = Vec::new();
    while at < body.len() {
        let (Some(field), Some(len)) = (number(body, at), number(body, at + 4)) else {
            return false;
        };
        let end = at + 8 + len as usize;
        let Some(value) = body.get(at + 8..end) else { return false };
        if field == FIELD_CONTENT_TYPE {
            types.push(value);
        }
        at = end;
    }
    kind(body) == Some(Control::Accept as u32)
        && (types.is_empty() || types.contains(&CONTENT_TYPE))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// Reader of frames on a connection.
    pub(in super::super) struct FrameReader(UnixStream);

    impl FrameReader {
        /// Performs the handshake with the writer.
        pub(in super::super) fn accept(mut stream: UnixStream) -> FrameReader {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let ready = read_control(&mut stream).unwrap();
            assert_eq!(kind(&ready), Some(Control::Ready as u32));
            stream.write_all(&control(Control::Accept, true)).unwrap();
            let start = read_control(&mut stream).unwrap();
            assert_eq!(kind(&start), Some(Control::Start as u32));
            FrameReader(stream)
        }

        /// Returns the next frame. Answers STOP with FINISH, and then returns `None`.
        pub(in super::super) fn next(&mut self) -> Option<Vec<u8>> {
            let mut len = [0; 4];
            self.0.read_exact(&mut len).unwrap();
            let len = u32::from_be_bytes(len) as usize;
            let mut data = vec![0; len];
            if len > 0 {
                self.0.read_exact(&mut data).unwrap();
                return Some(data);
            }
            self.0.read_exact(&mut [0; 4]).unwrap();
            let mut stop = [0; 4];
            self.0.read_exact(&mut stop).unwrap();
            assert_eq!(kind(&stop), Some(Control::Stop as u32));
            self.0.write_all(&control(Control::Finish, false)).unwrap();
            None
        }
    }

    #[test]
    fn both_sides_agree_and_every_frame_arrives() {
        let (near, far) = UnixStream::pair().unwrap();
        let writing = std::thread::spawn(move || {
            let mut writer = FrameWriter::start(near).unwrap();
            for data in [&b"one"[..], &[7; 100_000], b"three"] {
                writer.put(data);
            }
            assert_eq!(writer.waiting(), 3 * 4 + 3 + 100_000 + 5);
            writer.flush().unwrap();
            writer.put(b"four");
            writer.finish().unwrap();
        });
        let mut reader = FrameReader::accept(far);
        let frames: Vec<Vec<u8>> = std::iter::from_fn(|| reader.next()).collect();
        assert_eq!(
            frames,
            [b"one".to_vec(), vec![7; 100_000], b"three".to_vec(), b"four".to_vec()]
        );
        writing.join().unwrap();
    }

    #[test]
    fn the_octets_are_those_of_the_definition() {
        let ready = control(Control::Ready, true);
        let expected = b"\0\0\0\0\0\0\0\"\0\0\0\x04\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap";
        assert_eq!(ready, expected);
        assert_eq!(control(Control::Stop, false), b"\0\0\0\0\0\0\0\x04\0\0\0\x03");
    }

    #[test]
    fn a_reader_of_another_content_type_is_rejected() {
        let field =
            |value: &[u8]| [&[0, 0, 0, 1][..], &(value.len() as u32).to_be_bytes(), value].concat();
        let accept = |fields: &[Vec<u8>]| [&[0, 0, 0, 1][..], &fields.concat()].concat();
        assert!(is_accept(&accept(&[])) && is_accept(&accept(&[field(CONTENT_TYPE)])));
        assert!(is_accept(&accept(&[field(b"other"), field(CONTENT_TYPE)])));
        assert!(!is_accept(&accept(&[field(b"other")])));
        assert!(!is_accept(&[0, 0, 0, 5]) && !is_accept(&[]));
        assert!(!is_accept(&accept(&[vec![0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]])), "cut off");
        for octets in
            [&[0, 0, 0, 1, 0, 0, 0, 4][..], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 0, 0, 1, 0, 0]]
        {
            assert!(read_control(&mut &octets[..]).is_err(), "{octets:?}");
        }
    }
}
