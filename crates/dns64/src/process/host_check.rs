//! Comparison of a configuration with this machine: users, CPUs, addresses, ports, folders, AF_XDP
//! and routes.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use net::address::ServiceAddr;
use net::affinity::allowed_cpus;
use net::socket::{Endpoint, listen_tcp};
use nix::unistd::{Group, User};
use units::CpuId;

use crate::config::{CONTROL_SOCKET, RESOLV_CONF, Settings};
use crate::control::client::ask;
use crate::control::protocol::{Answer, Request};
use crate::server::xdp_faults;

/// Folders created by the systemd unit.
const FOLDERS_OF_THE_UNIT: [&str; 2] = ["/run/dns64d", "/var/log/dns64d"];

/// Returns the users, groups and CPUs in the configuration that do not exist on this machine.
pub(super) fn missing(settings: &Settings) -> Vec<String> {
    let config = &settings.config;
    let allowed = allowed_cpus();
    let here = || allowed.iter().map(|cpu| cpu.0.to_string()).collect::<Vec<_>>().join(", ");
    let cpus = config.cpus.iter().enumerate().filter(|(_, cpu)| !allowed.contains(&CpuId(**cpu)));
    let cpus = cpus.map(|(number, cpu)| {
        let location = settings.location(&format!("cpus.{number}"));
        format!("{location}: CPU {cpu} is not available; available: {}", here())
    });
    let user = config.user.iter().filter(|name| matches!(User::from_name(name), Ok(None)));
    let user =
        user.map(|name| format!("{}: user {name} does not exist", settings.location("user")));
    let group = config.control.group.iter();
    let group = group.filter(|name| matches!(Group::from_name(name), Ok(None)));
    let group = group
        .map(|name| format!("{}: group {name} does not exist", settings.location("control.group")));
    cpus.chain(user).chain(group).collect()
}

/// Returns a message, with file and line, for each address, port, file, interface and route that a server with this
/// configuration could not use now. The messages are not errors, because the machine may change before the start, or
/// the server may run on a different machine. `listen` contains the addresses given on the command line.
pub(super) fn obstacles(settings: &Settings, listen: &[ServiceAddr]) -> Vec<String> {
    let mut findings = Findings::default();
    let mut running = Running { settings, addresses: None };
    for (number, keys) in settings.config.listen.iter().enumerate() {
        let location = match listen {
            [] => settings.location(&format!("listen.{number}")),
            _ => "--listen".to_owned(),
        };
        let address = keys.address;
        let udp = || address.resolve().and_then(|address| Endpoint::listen(address, 1)).map(drop);
        let tcp = || address.resolve().and_then(listen_tcp).map(drop);
        let [has_udp, has_tcp] = keys.transport.ports();
        let binds = has_udp.then(|| ("UDP", udp())).into_iter();
        let binds = binds.chain(has_tcp.then(|| ("TCP", tcp())));
        findings.of_address(&location, address, binds, &mut running);
    }
    if let Some(address) = settings.config.metrics.listen {
        let binds = [("TCP", address.resolve().and_then(listen_tcp).map(drop))];
        findings.of_address(&settings.location("metrics.listen"), address, binds, &mut running);
    }
    findings.of_files(settings);
    for (path, fault) in xdp_faults(settings) {
        findings.0.push(format!("{}: {fault}", settings.location(&path)));
    }
    findings.of_routes(settings);
    findings.0
}

/// Messages about parts of the configuration that do not fit this machine.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    /// Adds a message if one of the attempts to bind an address has failed. `binds` contains the
    /// result of one attempt per transport.
    fn of_address(
        &mut self,
        location: &str,
        address: ServiceAddr,
        binds: impl IntoIterator<Item = (&'static str, io::Result<()>)>,
        running: &mut Running<'_>,
    ) {
        for (transport, bound) in binds {
            match bound.map_err(|error| error.kind()) {
                Err(ErrorKind::AddrNotAvailable) => {
                    let text =
                        format!("{location}: this host does not have the address {}", address.ip());
                    return self.0.push(text);
                }
                Err(ErrorKind::AddrInUse) if !running.serves(address) => {
                    return self.0.push(format!(
                        "{location}: {transport} port {} of {} is in use by another program, or by a dns64d without a control socket",
                        address.port(),
                        address.ip()
                    ));
                }
                // Other errors are ignored, because they may not occur for the user that starts the
                // server.
                _ => {}
            }
        }
    }

    /// Checks the files and folders used by sockets and logs.
    fn of_files(&mut self, settings: &Settings) {
        let config = &settings.config;
        if let Some(socket) = &config.control.socket {
            let location = settings.location("control.socket");
            self.of_folder(&location, socket);
            self.of_socket(&location, socket);
        }
        if let Some(file) = config.query_log.file() {
            let location = settings.location("query-log.to");
            self.of_folder(&location, file);
            if file.is_dir() {
                self.0.push(format!("{location}: {} is a folder", file.display()));
            }
        }
        if let Some(socket) = &config.dnstap.socket {
            let location = settings.location("dnstap.socket");
            self.of_socket(&location, socket);
            self.of_folder(&location, socket);
        }
    }

    fn of_folder(&mut self, location: &str, file: &Path) {
        let Some(folder) = missing_folder(file) else { return };
        let is_of_unit = FOLDERS_OF_THE_UNIT.iter().any(|of_unit| folder == Path::new(of_unit));
        let later = if is_of_unit { "; the systemd unit creates it at the start" } else { "" };
        self.0.push(format!("{location}: folder {} does not exist{later}", folder.display()));
    }

    fn of_socket(&mut self, location: &str, socket: &Path) {
        let is_other = |metadata: std::fs::Metadata| !metadata.file_type().is_socket();
        if std::fs::metadata(socket).is_ok_and(is_other) {
            self.0.push(format!("{location}: {} is not a socket", socket.display()));
        }
    }

    /// Checks that the kernel has a route to each upstream.
    fn of_routes(&mut self, settings: &Settings) {
        for (number, upstream) in settings.upstreams.iter().enumerate() {
            let location = upstream_location(settings, number);
            if let Err(error) = connect(upstream.address) {
                let address = upstream.address;
                self.0.push(format!("{location}: no route to the upstream {address}: {error}"));
            }
        }
    }
}

/// Returns the file and line of an upstream in the configuration, or the path of resolv.conf if the
/// upstream is listed there.
pub(super) fn upstream_location(settings: &Settings, number: usize) -> String {
    match settings.follows_system {
        true => RESOLV_CONF.to_owned(),
        false => settings.location(&format!("upstream.{number}.address")),
    }
}

/// Returns a UDP socket connected to an upstream. Connecting this socket sends no packet.
pub(super) fn connect(upstream: ServiceAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if upstream.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(upstream.resolve()?)?;
    Ok(socket)
}

/// Returns the folder of a file if this folder does not exist, otherwise `None`.
fn missing_folder(file: &Path) -> Option<&Path> {
    file.parent().filter(|folder| !folder.is_dir())
}

/// A server that may already be running with this configuration.
struct Running<'a> {
    settings: &'a Settings,
    /// Addresses at which the running server listens. `None` before the status of this server has been requested.
    addresses: Option<Vec<SocketAddr>>,
}

impl Running<'_> {
    /// True if the running server serves DNS or metrics at this address.
    fn serves(&mut self, address: ServiceAddr) -> bool {
        let settings = self.settings;
        let addresses = self.addresses.get_or_insert_with(|| {
            let socket = settings.config.control.socket.as_deref();
            let status = ask(socket.unwrap_or(Path::new(CONTROL_SOCKET)), &Request::Status);
            let Ok(Answer::Status(status)) = status else { return Vec::new() };
            let encrypted = status.encrypted_addresses.into_iter().map(|one| one.address);
            status.addresses.into_iter().chain(encrypted).chain(status.metrics_address).collect()
        });
        let Ok(address) = address.resolve() else { return false };
        // A socket for the unspecified address occupies the port on all addresses.
        let overlaps = |served: &SocketAddr| {
            served.port() == address.port()
                && (served.ip() == address.ip()
                    || served.ip().is_unspecified()
                    || address.ip().is_unspecified())
        };
        addresses.iter().any(overlaps)
    }
}
