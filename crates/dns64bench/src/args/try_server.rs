//! Arguments of `try`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tester::measurer::expect::Prefix;
use wire::name::Domain;

use super::common::Display;
use super::help::{AUTH, NAMES, REPLIES, SERVER};
use super::values::{Server, parse_address, parse_time};

#[derive(Debug, Args)]
pub(crate) struct Try {
    /// DNS64 server to measure, such as 127.0.0.1, [2001:2::1]:5353 or localhost; the default port is 53
    #[arg(long, value_name = "SERVER", help_heading = SERVER)]
    pub(crate) server: Server,
    /// Maximum time to wait until the server is configured and resolves the test names; 0s: check once without waiting
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time, help_heading = SERVER)]
    pub(crate) wait: Duration,
    /// Address and port of AuthDNS on this host, to which the server must forward queries for the test names [default:
    /// port 5300 at the local address from which this host sends to the server]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = AUTH)]
    pub(crate) auth_listen: Option<SocketAddr>,
    /// DNS zone of the test names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// DNS64 prefix of the server; may be given several times
    #[arg(long, value_name = "P/LEN", default_value = "64:ff9b::/96", help_heading = REPLIES)]
    pub(crate) expect_prefix: Vec<Prefix>,
    #[command(flatten)]
    pub(crate) display: Display,
}
