//! Configuration lines that make an existing server forward the test domain to AuthDNS and synthesize AAAA records from
//! the answers. Campaigns write complete configurations instead (`hosts::servers`).

use std::fmt;
use std::net::SocketAddr;

use tester::measurer::expect::Prefix;
use wire::name::Domain;

/// Values that appear in the configuration lines of all servers.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    /// Domain that the server must forward to AuthDNS.
    pub(super) domain: Domain,
    /// Address and port of AuthDNS.
    pub(super) auth: SocketAddr,
    /// The DNS64 prefix.
    pub(super) prefix: Prefix,
}

impl Forward {
    /// Returns the domain with a final dot.
    fn absolute(&self) -> String {
        format!("{}.", self.domain)
    }

    /// Returns the address of AuthDNS in the form `ADDRESS@PORT`.
    fn at(&self) -> String {
        format!("{}@{}", self.auth.ip(), self.auth.port())
    }

    /// Returns the DNS64 prefix without its length.
    fn network(&self) -> String {
        let prefix = self.prefix.to_string();
        prefix.split('/').next().unwrap_or_default().to_owned()
    }
}

/// Server software, and the format of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Unbound,
    Bind,
    /// PowerDNS Recursor 5 with a configuration in YAML.
    RecursorYaml,
    /// PowerDNS Recursor 4, or version 5 with the older `key=value` format.
    RecursorOld,
    /// Knot Resolver 6.
    Knot6,
    /// Knot Resolver 5.
    Knot5,
    Coredns,
    Dns64d,
}

/// Configuration lines for one file, or for one section of a file.
pub(super) struct Part {
    /// Name of the file and, if necessary, of the section.
    place: &'static str,
    text: String,
}

/// All configuration lines for one server software.
pub(super) struct Lines {
    title: &'static str,
    parts: Vec<Part>,
    /// Command that makes the server load the changed configuration.
    apply: &'static str,
}

impl Form {
    /// All supported formats, in the order in which they are printed.
    pub(super) const ALL: &'static [Form] = &[
        Form::Unbound,
        Form::Bind,
        Form::RecursorYaml,
        Form::RecursorOld,
        Form::Knot6,
        Form::Knot5,
        Form::Coredns,
        Form::Dns64d,
    ];

    /// Returns the configuration lines for this server software, with the domain, AuthDNS address and prefix in
    /// `forward`.
    pub(super) fn lines(self, forward: &Forward) -> Lines {
        match self {
            Form::Unbound => unbound(forward),
            Form::Bind => bind(forward),
            Form::RecursorYaml => recursor_yaml(forward),
            Form::RecursorOld => recursor_old(forward),
            Form::Knot6 => knot_6(forward),
            Form::Knot5 => knot_5(forward),
            Form::Coredns => coredns(forward),
            Form::Dns64d => dns64d(forward),
        }
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- {} ---", self.title)?;
        for Part { place, text } in &self.parts {
            writeln!(f, "In {place}:\n\n{text}")?;
        }
        writeln!(f, "Then run: {}", self.apply)
    }
}

fn unbound(forward: &Forward) -> Lines {
    let (domain, at, prefix) = (forward.absolute(), forward.at(), forward.prefix);
    // Unbound answers names below "test." with NXDOMAIN by default, and the root's NSEC records deny that "test."
    // exists (RFC 6761 §6.2).
    let text = format!(
        "server:\n  module-config: \"dns64 validator iterator\"\n  dns64-prefix: {prefix}\n  \
         do-not-query-localhost: no\n  domain-insecure: \"{domain}\"\n  local-zone: \"test.\" nodefault\n\
         forward-zone:\n  name: \"{domain}\"\n  forward-addr: {at}\n"
    );
    Lines {
        title: "Unbound",
        parts: vec![Part { place: "/etc/unbound/unbound.conf.d/dns64bench.conf", text }],
        apply: "systemctl reload unbound",
    }
}

fn bind(forward: &Forward) -> Lines {
    let Forward { domain, auth, prefix } = forward;
    let options = format!(
        "dns64 {prefix} {{ clients {{ any; }}; }};\nvalidate-except {{ \"{domain}\"; }};\n"
    );
    let zone = format!(
        "zone \"{domain}\" {{\n  type forward;\n  forward only;\n  forwarders {{ {} port {}; }};\n}};\n",
        auth.ip(),
        auth.port()
    );
    Lines {
        title: "BIND",
        parts: vec![
            Part { place: "/etc/bind/named.conf.options, inside options { }", text: options },
            Part { place: "/etc/bind/named.conf.local", text: zone },
        ],
        apply: "systemctl reload named",
    }
}

fn recursor_yaml(forward: &Forward) -> Lines {
    let Forward { domain, auth, prefix } = forward;
    let text = format!(
        "dnssec:\n  negative_trustanchors:\n    - name: {domain}\n      reason: dns64bench\nrecursor:\n  \
         forward_zones:\n    - zone: {domain}\n      forwarders: ['{auth}']\n  dns64_prefix: {prefix}\n"
    );
    Lines {
        title: "PowerDNS Recursor 5 (YAML)",
        parts: vec![Part { place: "/etc/powerdns/recursor.d/dns64bench.yml", text }],
        apply: "systemctl restart pdns-recursor",
    }
}

fn recursor_old(forward: &Forward) -> Lines {
    let Forward { domain, auth, prefix } = forward;
    let text = format!("forward-zones={domain}={auth}\ndns64-prefix={prefix}\n");
    Lines {
        title: "PowerDNS Recursor 4",
        parts: vec![Part {
            place: "/etc/powerdns/recursor.d/dns64bench.conf (forward-zones+= if it is set elsewhere)",
            text,
        }],
        apply: "systemctl restart pdns-recursor",
    }
}

fn knot_6(forward: &Forward) -> Lines {
    let (domain, at, prefix) = (&forward.domain, forward.at(), forward.prefix);
    let text = format!(
        "dns64:\n  enable: true\n  prefix: {prefix}\nforward:\n  - subtree: {domain}\n    servers: ['{at}']\n    \
         options: {{ dnssec: false }}\n"
    );
    Lines {
        title: "Knot Resolver 6",
        parts: vec![Part {
            place: "/etc/knot-resolver/config.yaml (without \"enable\" in releases that reject it)",
            text,
        }],
        apply: "systemctl restart knot-resolver",
    }
}

fn knot_5(forward: &Forward) -> Lines {
    let (domain, at, network) = (&forward.domain, forward.at(), forward.network());
    let text = format!(
        "modules = {{ dns64 = '{network}' }}\ntrust_anchors.set_insecure({{ '{domain}' }})\n\
         policy.add(policy.suffix(policy.FORWARD({{ '{at}' }}), {{ todname('{domain}') }}))\n"
    );
    Lines {
        title: "Knot Resolver 5",
        parts: vec![Part { place: "/etc/knot-resolver/kresd.conf, at the end", text }],
        apply: "systemctl restart kresd@1",
    }
}

fn coredns(forward: &Forward) -> Lines {
    let Forward { domain, auth, prefix } = forward;
    let text = format!("forward {domain} {auth}\ndns64 {{\n  prefix {prefix}\n  allow_ipv4\n}}\n");
    Lines {
        title: "CoreDNS",
        parts: vec![Part {
            place: "Corefile, inside the server block and above its other lines with forward",
            text,
        }],
        apply: "systemctl restart coredns",
    }
}

fn dns64d(forward: &Forward) -> Lines {
    let Forward { domain, auth, prefix } = forward;
    let text = format!(
        "[[domain]]\ndomain = \"{domain}\"\nprefixes = [{{ prefix = \"{prefix}\" }}]\n[[upstream]]\nname = \"authdns\"\naddress = \"{}\"\nport = {}\n\
         [[forward]]\ndomain = \"{domain}\"\nupstreams = [\"authdns\"]\nvalidate = false\n",
        auth.ip(),
        auth.port()
    );
    Lines {
        title: "dns64d",
        parts: vec![Part {
            place: "/etc/dns64d/dns64d.toml (a server in use also needs its other upstreams)",
            text,
        }],
        apply: "systemctl reload dns64d",
    }
}
