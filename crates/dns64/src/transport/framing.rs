//! DNS messages on a stream. A two-octet length precedes each message (RFC 1035 §4.2.2).

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Reads the next message.
///
/// # Errors
/// Returns an error if the stream ends or fails, or if the message is incomplete after the time `patience`.
pub(crate) async fn read_message(
    reader: &mut (impl AsyncRead + Unpin),
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let read = async {
        let len = reader.read_u16().await?;
        let mut bytes = vec![0; usize::from(len)];
        reader.read_exact(&mut bytes).await?;
        Ok(bytes)
    };
    timeout(patience, read).await?
}

/// Writes the length and the message in one call, so that both are sent in one segment (RFC 7766 §8).
///
/// # Errors
/// Returns an error if the stream fails, or if the message is longer than 65 535 octets.
pub(crate) async fn write_message(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &[u8],
) -> io::Result<()> {
    let len = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut framed = Vec::with_capacity(2 + message.len());
    framed.extend(len.to_be_bytes());
    framed.extend(message);
    writer.write_all(&framed).await?;
    // Over TLS, a part of the message may still be in the buffer of the TLS library.
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_stream<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn framing_round_trip() {
        on_a_stream(async {
            let (mut near, mut far) = tokio::io::duplex(64 << 10);
            for message in [&b"one"[..], b"", &[7; 40_000]] {
                write_message(&mut near, message).await.unwrap();
                assert_eq!(read_message(&mut far, Duration::from_secs(30)).await.unwrap(), message);
            }
            let too_long = write_message(&mut near, &[0; 65_536]).await.unwrap_err();
            assert_eq!(too_long.kind(), io::ErrorKind::InvalidData);
        });
    }

    #[test]
    fn no_message_stays_in_a_buffer() {
        on_a_stream(async {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = tokio::io::BufWriter::new(near);
            write_message(&mut near, b"one").await.unwrap();
            assert_eq!(read_message(&mut far, Duration::from_secs(30)).await.unwrap(), b"one");
        });
    }

    #[test]
    fn a_message_that_is_cut_off_is_an_error() {
        on_a_stream(async {
            let (mut near, mut far) = tokio::io::duplex(64);
            near.write_all(&[0, 5, 1, 2]).await.unwrap();
            let incomplete = read_message(&mut far, Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(incomplete.kind(), io::ErrorKind::TimedOut);
            near.write_all(&[0, 5, 1]).await.unwrap();
            drop(near);
            assert!(read_message(&mut far, Duration::from_secs(30)).await.is_err());
        });
    }
}
