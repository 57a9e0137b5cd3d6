//! Networks: upstreams that cannot be reached.

use std::net::{SocketAddr, UdpSocket};

use domain::base::iana::{Rcode, Rtype};

use crate::harness::*;

/// An address at which no server listens.
fn closed() -> SocketAddr {
    UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap()
}

/// The names and RCODEs of the next two replies, in the order in which they come.
fn next_two(socket: &UdpSocket) -> [(String, Rcode); 2] {
    [(); 2].map(|()| {
        let got = receive(socket, SOON).expect("a reply");
        (got.message.sole_question().unwrap().qname().to_string(), got.rcode())
    })
}

#[test]
fn item_43_refused_queries_fail_before_silent_ones() {
    let silent = Upstream::new(|_| Vec::new());
    let forwards = "[[forward]]\ndomain = 'silent.test'\nupstreams = ['127.0.0.1']\n\
                    [[forward]]\ndomain = 'refused.test'\nupstreams = ['127.0.0.2']\n";
    let server = server(&[silent.address, closed()], &format!("{PREFIX}{forwards}"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..2 {
        let names = ["silent", "refused"].map(|of| format!("n{n}.{of}.test"));
        for name in &names {
            client.send_to(&ask(name, Rtype::AAAA).bytes(), server.address).unwrap();
        }
        let [silent, refused] = names;
        let wanted = [(refused, Rcode::SERVFAIL), (silent, Rcode::SERVFAIL)];
        assert_eq!(next_two(&client), wanted);
    }
}
