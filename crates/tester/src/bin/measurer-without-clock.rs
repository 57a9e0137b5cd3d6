//! The Measurer's send and receive path without its clock, for `cargo xtask bench instructions`.
//!
//! Usage: `measurer-without-clock SERVER QUERIES`. The server must synthesize AAAA records under 64:ff9b::/96 and
//! answer queries in order. The exit status is 0 if every reply is valid.
#![forbid(unsafe_code)]

use std::env::args;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tester::measurer::burst::Burst;
use tester::measurer::plan::{Spin, TrialPlan};
use tester::measurer::run_without_clock;
use units::{Nanos, Qps};
use wire::template::QueryTemplate;

const USAGE: &str = "usage: measurer-without-clock SERVER QUERIES";
/// Query rate of the plan. All queries are due at the start, so the rate determines only the interval between their
/// deadlines, and the number of queries that the ledger of send times can contain.
const RATE: Qps = Qps(1_000);
/// Timeout that is longer than the whole run under callgrind, so that no reply is late.
const TIMEOUT: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Number of source ports. Together, the receive buffers of their sockets can store all replies. Each buffer contains
/// enough replies for several full batches.
const SOURCE_PORTS: u16 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let [server, queries] = args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| USAGE)?;
    let (server, queries): (SocketAddr, u64) = (server.parse()?, queries.parse()?);
    let plan = TrialPlan {
        duration: Nanos(queries * Nanos::SECOND.0 / RATE.0),
        timeout: TIMEOUT,
        prefixes: vec!["64:ff9b::/96".parse()?],
        source_ports: SOURCE_PORTS,
        spin: Spin::Never,
        // Queries are sent one by one.
        max_burst: Burst::Fixed(Nanos(0)),
        real_time: false,
        ..TrialPlan::new(server, RATE)
    };
    let counts = run_without_clock(&plan, || ask_once(&plan))?;
    if counts.valid != queries {
        return Err(format!("{} of {queries} replies are valid: {counts:?}", counts.valid).into());
    }
    Ok(())
}

/// Sends one more query from a different port and waits for the reply. By then the server has
/// answered all earlier queries.
fn ask_once(plan: &TrialPlan) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(plan.server)?;
    socket.set_read_timeout(Some(Duration::from(TIMEOUT)))?;
    socket.send(QueryTemplate::aaaa(&plan.domain).bytes())?;
    socket.recv(&mut [0; 512]).map(drop)
}
