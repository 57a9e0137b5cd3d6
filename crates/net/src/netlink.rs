//! Requests to the kernel's routing tables (rtnetlink(7)) over one blocking socket.
//!
//! A socket belongs to the network namespace of the thread that opens it, even if other threads use the socket.

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A connection to the kernel's routing tables.
pub(crate) struct Routing {
    socket: Socket,
    sequence: u32,
}

impl Routing {
    /// Opens a connection in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns any error from socket(2) or bind(2).
    pub(crate) fn open() -> io::Result<Routing> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Routing { socket, sequence: 0 })
    }

    /// Returns the single object that `question` selects.
    ///
    /// # Errors
    /// Returns any error from the kernel, or `NotFound` if there is no such object.
    pub(crate) fn get(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let found = self.ask(question, NLM_F_REQUEST)?.into_iter().next();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Returns all objects of the kind that `question` requests, for example all links or all routes. Objects that
    /// `netlink-packet-route` cannot parse are omitted.
    ///
    /// # Errors
    /// Returns any error from the kernel.
    pub(crate) fn dump(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(question, NLM_F_REQUEST | NLM_F_DUMP)
    }

    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (received, _) = self.socket.recv_from_full()?;
            let mut rest = &received[..];
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(rest)
                    .map_err(|error| unreadable(&error))?
                    .length() as usize;
                let next = length.next_multiple_of(4).min(rest.len());
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]) {
                    // This message belongs to an earlier request that ended with an error.
                    Ok(answer) if answer.header.sequence_number != self.sequence => {}
                    Ok(answer) => match answer.payload {
                        NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                        NetlinkPayload::Error(error) if error.code.is_some() => {
                            return Err(error.to_io());
                        }
                        // The end of a dump, or an acknowledgement.
                        _ => return Ok(answers),
                    },
                    Err(_) if flags & NLM_F_DUMP == NLM_F_DUMP => {}
                    Err(error) => return Err(unreadable(&error)),
                }
                rest = &rest[next..];
            }
            if flags & NLM_F_DUMP != NLM_F_DUMP {
                return Ok(answers);
            }
        }
    }
}

fn unreadable(error: &DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
